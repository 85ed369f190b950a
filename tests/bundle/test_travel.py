"""What the user reads about what travels, and about a file that did not."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.bundle import Bundle
from echelon.bundle.travel import notes_on_travel, what_travels, why_missing
from echelon.bundle.withheld import Why, Withheld


def bundle(**withheld: Why) -> Bundle:
    kept = tuple(Withheld(path=path.replace("_", "/"), why=why) for path, why in withheld.items())
    return Bundle(digest="", data=b"", files=14, size=212 * 1024, withheld=kept)


def test_the_line_before_a_run() -> None:
    found = bundle(data_=".gitignore", a=".gitignore", b=".gitignore", c=".echelonignore")
    assert what_travels(found) == "14 files, 212 KiB; 3 ignored by .gitignore; 1 ignored by .echelonignore"
    assert what_travels(bundle()) == "14 files, 212 KiB"


def test_what_stays_without_an_ignore_file_is_named_but_for_the_results_at_the_top() -> None:
    travels, left_out, secret = notes_on_travel(
        bundle(runs_="results", sub_runs_="results", x="image", key="secret")
    )
    assert travels == "ships 14 files, 212 KiB"
    assert left_out == "left out: sub/runs/ (results), x (an image archive); --include ships what it names"
    assert secret == "key looks like a secret: left out; --include key ships it"
    assert len(notes_on_travel(bundle(runs_="results"))) == 1


@pytest.mark.parametrize(
    ("error", "folder"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/a.csv'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '../data/a.csv'", "sub"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/echelon/space/code/data/a.csv'", "sub"),
        ("FileNotFoundError: [Errno 2] Unable to open file (name = 'data/a.csv', errno = 2)", ""),
    ],
)
def test_a_file_that_is_only_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").touch()
    said = why_missing(error, bundle(data_=".gitignore").withheld, folder, tmp_path)
    assert said is not None
    assert said.startswith("data/a.csv is here")
    assert ".gitignore" in said
    assert "--include data/ " in said


def test_a_path_of_this_machine(tmp_path: Path) -> None:
    error = f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}'"
    said = why_missing(error, (), "", tmp_path)
    assert said is not None
    assert "--mount pvc:" in said


@pytest.mark.parametrize(
    "error",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/gone.csv'",  # it is not here either
        "FileNotFoundError: [Errno 2] No such file or directory: 'other/a.csv'",
        "FileNotFoundError",
        "ValueError: 'data/a.csv'",
    ],
)
def test_any_other_error(tmp_path: Path, error: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").touch()
    assert why_missing(error, bundle(data_=".gitignore").withheld, "", tmp_path) is None
