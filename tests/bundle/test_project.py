"""Where a project begins, and which folders are nobody's."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.bundle import find_project, pack
from echelon.bundle.survey import survey
from echelon.errors import CannotShip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "homes" / "me"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def script_in(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text("print()\n")
    return folder / "train.py"


def test_without_a_marker_it_is_the_scripts_own_folder(home: Path) -> None:
    assert find_project(script_in(home / "work/deep")) == home / "work/deep"


def test_the_nearest_marker_counts(home: Path) -> None:
    (home / "work").mkdir()
    (home / "work/.git").mkdir()
    script = script_in(home / "work/packages/one/src")
    assert find_project(script) == home / "work"
    (home / "work/packages/one/pyproject.toml").touch()
    assert find_project(script) == home / "work/packages/one"


def test_a_git_file_counts_too(home: Path) -> None:
    script = script_in(home / "tree/src")
    (home / "tree/.git").write_text("gitdir: ../elsewhere\n")
    assert find_project(script) == home / "tree"


def test_dotfiles_in_the_home_do_not_make_it_a_project(home: Path) -> None:
    (home / ".git").mkdir()
    (home.parent / "pyproject.toml").touch()
    assert find_project(script_in(home / "experiments")) == home / "experiments"


def test_a_script_directly_in_the_home_belongs_to_it(home: Path) -> None:
    (home / ".git").mkdir()
    assert find_project(script_in(home)) == home


def test_above_the_home_nothing_counts_for_a_neighbour(home: Path) -> None:
    (home.parent / ".git").mkdir()
    assert find_project(script_in(home.parent / "shared")) == home.parent / "shared"


def test_a_folder_that_everybody_writes_to_is_no_project(tmp_path: Path, home: Path) -> None:
    drop = tmp_path / "drop"
    script = script_in(drop / "mine")
    drop.chmod(0o1777)
    (drop / "pyproject.toml").touch()
    assert find_project(script) == drop / "mine"


def test_a_linked_script_belongs_where_it_lies(home: Path) -> None:
    script = script_in(home / "project")
    (home / "project/pyproject.toml").touch()
    (home / "bin").mkdir()
    (home / "bin/train.py").symlink_to(script)
    assert find_project(home / "bin/train.py") == home / "project"


def test_a_folder_that_runs_as_a_script_is_its_own_project(home: Path) -> None:
    (home / "tool").mkdir()
    (home / "tool/__main__.py").touch()
    assert find_project(home / "tool") == home / "tool"


def test_relative_paths_and_missing_scripts_work(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "work").mkdir()
    monkeypatch.chdir(home / "work")
    assert find_project(Path("missing.py")) == home / "work"


def test_the_home_is_not_shipped_by_accident(home: Path) -> None:
    (home / "id_rsa").write_text("secret")
    (home / ".git").mkdir()
    script_in(home)
    for refused in (home, home.parent, Path("/")):
        with pytest.raises(CannotShip, match="is not a project") as caught:
            pack(refused)
        assert ".echelonignore" in caught.value.hint
    (home / ".echelonignore").write_text("id_rsa\n")
    assert [each.path for each in survey(home).found] == [".echelonignore", "train.py"]


def test_what_is_no_folder_is_named(home: Path) -> None:
    with pytest.raises(CannotShip, match="missing is not a folder"):
        pack(home / "missing")
    with pytest.raises(CannotShip, match=r"train\.py is not a folder"):
        pack(script_in(home / "work"))
