from __future__ import annotations

from pathlib import Path

import pytest

from echelon.errors import InvalidJob
from echelon.jobfile import read_job_file
from echelon.model.settings import Settings


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, name: str = "job.yaml") -> Settings:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return read_job_file(path)


def test_are_relative_to_the_file(tmp_path: Path) -> None:
    said = read(
        "script: ../train.py\nresults: out\npython: .venv/bin/python\nsecret: [A, B=@token, C=@/etc/c]\n",
        "jobs/deep/job.yaml",
    )
    assert said.script == "jobs/train.py"
    assert said.results == str(tmp_path / "jobs/deep/out")
    assert said.python == str(tmp_path / "jobs/deep/.venv/bin/python")
    assert said.secret == ("A", f"B=@{tmp_path}/jobs/deep/token", "C=@/etc/c")


def test_of_pods_are_left_alone_but_for_the_requirements(tmp_path: Path) -> None:
    said = read(
        "script: a.py\nrequirements: ../deep.txt\nmount: [hostPath:/data:/data]\ncollect: [cache]\n"
        "code: pvc:work/a\noutput: pvc:work/b\n",
        "jobs/job.yaml",
    )
    assert said.requirements == str(tmp_path / "deep.txt")
    assert (said.mount, said.collect) == (("hostPath:/data:/data",), ("cache",))
    assert (said.code, said.output) == ("pvc:work/a", "pvc:work/b")


def test_beside_the_file_in_the_working_directory_stay_as_they_are() -> None:
    assert read("script: train.py\n").script == "train.py"
    assert read("command: [./prog, ./data]\n").command == ("./prog", "./data")


def test_outside_the_working_directory_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read("script: train.py\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert read_job_file(Path("../job.yaml")).script == str(tmp_path / "train.py")


def test_through_a_linked_folder(tmp_path: Path) -> None:
    (tmp_path / "real/jobs").mkdir(parents=True)
    (tmp_path / "jobs").symlink_to("real/jobs")
    read("script: ../train.py\n", "real/jobs/job.yaml")
    assert read_job_file(Path("jobs/job.yaml")).script == "real/train.py"


def test_a_linked_python_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/python").symlink_to("/usr/bin/env")
    assert read("script: a.py\npython: env/python\n").python == str(tmp_path / "env/python")


def test_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert read("script: ~/train.py\nresults: ~/out\n").results == "/home/me/out"


def test_a_program_by_path_is_found_from_the_file_its_words_are_left_alone() -> None:
    assert read("command: bin/prog --in data/x\n", "jobs/job.yaml").command == (
        "jobs/bin/prog",
        "--in",
        "data/x",
    )
    assert read("command: ../prog\n", "jobs/job.yaml").command == ("./prog",)
    assert read("command: prog jobs/x\n", "jobs/job.yaml").command == "prog jobs/x"
    assert read("command: [/opt/prog]\n", "jobs/job.yaml").command == ("/opt/prog",)
    assert read("script: a.py\npython: python3.12\n", "jobs/job.yaml").python == "python3.12"


@pytest.mark.parametrize("text", ['"a\\0b/c"', "~nobody-of-this-name/x"])
def test_that_cannot_be(text: str) -> None:
    with pytest.raises(InvalidJob, match=r"job.yaml:1: script: .* cannot be a path") as caught:
        read(f"script: {text}\n")
    assert caught.value.field == "script"
