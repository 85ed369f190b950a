"""Defaults of a project, in the pyproject.toml above the script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from echelon.errors import InvalidJob
from echelon.jobfile import read_tool_table
from echelon.model.settings import RoleSettings, Settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def defaults(project: Path, table: str) -> Settings:
    (project / "pyproject.toml").write_text(table, encoding="utf-8")
    return read_tool_table(project / "src/train.py")


def test_every_kind_of_value(project: Path) -> None:
    said = defaults(
        project,
        """
[tool.echelon]
workers = 2
gpu-type = "A100"
cpus = 1.50
no_wait = true
include = ["data/*"]
env = {LR = 1e-3, DEBUG = true, N = 3}
[tool.echelon.roles]
ps = 1
evaluator = {memory = "8Gi"}
""",
    )
    assert said == Settings(
        workers=2,
        gpu_type="A100",
        cpus="1.50",
        no_wait=True,
        include=("data/*",),
        env={"LR": "1e-3", "DEBUG": "true", "N": 3},
        roles={"ps": 1, "evaluator": RoleSettings(memory="8Gi")},
    )


def test_from_a_folder_a_relative_script_and_one_that_is_missing(project: Path) -> None:
    expected = defaults(project, "[tool.echelon]\nworkers = 3\n")
    assert expected.workers == 3
    for start in (Path("src/train.py"), Path("src"), Path(), Path("src/missing.py"), Path("train.py")):
        assert read_tool_table(start) == expected


def test_paths_are_relative_to_the_pyproject(project: Path) -> None:
    said = defaults(
        project, '[tool.echelon]\nresults = "out"\nsecret = ["T=@.token"]\npython = ".venv/bin/python"\n'
    )
    assert said.results == str(project / "out")
    assert said.secret == (f"T=@{project}/.token",)
    assert said.python == str(project / ".venv/bin/python")


def test_the_nearest_one_alone_counts(project: Path) -> None:
    (project / "src/pyproject.toml").write_text("[project]\nname = 'inner'\n")
    assert defaults(project, "[tool.echelon]\nworkers = 3\n") == Settings()


def test_a_folder_of_that_name_is_passed_over(project: Path) -> None:
    (project / "src/pyproject.toml").mkdir()
    assert defaults(project, "[tool.echelon]\nworkers = 3\n").workers == 3


def test_none_at_all(project: Path) -> None:
    assert read_tool_table(project / "src/train.py") == Settings()


def test_a_broken_one_that_does_not_speak_of_echelon_is_left_alone(project: Path) -> None:
    assert defaults(project, "[project\n") == Settings()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[tool.echelon]\nwrokers = 2\n", "'wrokers' is not a setting (did you mean 'workers'?)"),
        ("[tool.echelon]\nprocs = '2'\n", "procs: '2' is text, not a whole number"),
        ("[tool.echelon]\ntimeout = 07:32:00\n", "is of type time, not text or a number"),
        ("[tool.echelon]\ncpus = true\n", "cpus: True is a boolean"),
        ("[tool.echelon]\nscript = 'a.py'\n", "script: 'a.py' cannot be a default of all runs"),
        ("[tool.echelon]\nname = 'a'\n", "move it to a job file or the command line"),
        ("[tool.echelon]\nargs = []\n", "cannot be a default of all runs"),
        ("[tool]\nechelon = 2\n", "has a value where a table belongs"),
        ("[[tool.echelon]]\nworkers = 2\n", "has a value where a table belongs"),
        ("[tool.echelon]\nworkers = = 2\n", "is not TOML: Invalid value (at line 2, column 11)"),
        ("[tool.echelon]\nworkers = 1\nworkers = 2\n", "is not TOML: Cannot overwrite a value"),
        (f"[tool.echelon]\nworkers = {'9' * 5000}\n", "is not TOML"),
        (f"[tool.echelon]\nargs = {'[' * 5000}\n", "is not TOML"),
        (f"[tool.echelon]\npython = 0x{'f' * 5000}\n", "python: '…' is a whole number, not text"),
    ],
)
def test_a_mistake_names_the_file(project: Path, table: str, words: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        defaults(project, table)
    assert "pyproject.toml" in caught.value.message
    assert str(project) not in caught.value.message
    assert words in str(caught.value)
    assert caught.value.hint


def test_bytes_that_are_no_text(project: Path) -> None:
    (project / "pyproject.toml").write_bytes(b"[tool.echelon]\npython = '\xff'\n")
    with pytest.raises(InvalidJob, match="is not UTF-8 text"):
        read_tool_table(project)


def test_one_that_cannot_be_read(project: Path) -> None:
    (project / "pyproject.toml").symlink_to("pyproject.toml")
    with pytest.raises(InvalidJob, match="cannot be read") as caught:
        read_tool_table(project)
    assert str(project / "pyproject.toml") in caught.value.message


def test_nobody_pays_for_parsers_that_are_not_needed(project: Path) -> None:
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    program = (
        "import sys, pathlib, echelon.jobfile as jobfile;"
        "jobfile.read_tool_table(pathlib.Path('src/train.py'));"
        "jobfile.settings_from({'workers': 2}, source='x');"
        "print(sorted({'yaml', 'tomllib', 'difflib', 'msgspec', 'json'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
