"""A job kept in a file: `-f`, `--set`, and who has the last word."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from echelon.cli import main

Call = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]


@pytest.fixture
def plan(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """The job that a command line means, as the dry run tells of it."""

    def plan(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main.call(["run", "--dry-run", "-o", "json", *words]) == 0
        job: dict[str, Any] = json.loads(capsys.readouterr().out)["job"]
        return job

    return plan


def test_flag_over_set_over_file_over_project(plan: Callable[..., dict[str, Any]], write: Write) -> None:
    write("hello.py", "print('hi')")
    settings = "workers = 2\nrestarts = 2\nprocs = 2\ntimeout = 2\nenv = {A = 'project', D = 'project'}\n"
    write("pyproject.toml", f"[tool.echelon]\n{settings}")
    write("job.yaml", "script: hello.py\nworkers: 3\nrestarts: 3\nprocs: 3\nenv: {A: file, C: file}\n")
    job = plan(
        "-f",
        "job.yaml",
        "--set",
        "workers=4",
        "--set",
        "restarts=4",
        "--set",
        "env.B=set",
        "-n",
        "5",
        "--env",
        "A=flag",
    )
    assert (job["workers"], job["restarts"], job["procs"], job["timeout"]) == (5, 4, 3, 2)
    assert job["env"] == {"A": "flag", "B": "set", "C": "file", "D": "project"}
    assert (plan("-f", "job.yaml")["workers"], plan("hello.py")["workers"]) == (3, 2)


def test_a_job_file_runs(cli: Call, hello: str, write: Write) -> None:
    write(
        "jobs/job.yaml",
        """
        name: from-file
        script: ../hello.py
        args: [--epochs, 3, yes, "{run}"]
        workers: 2
        results: ../out
        """,
    )
    done = cli("run", "-f", "jobs/job.yaml")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{n}] hello from {n} --epochs 3 yes from-file" for n in (0, 1)
    ]
    assert Path("out/logs/rank-1.log").exists()
    assert (
        cli("run", "-f", "jobs/job.yaml", "--set", "workers=1", "--name", "b", "--reuse-results").returncode
        == 0
    )
    assert len(json.loads(cli("status", "b", "-o", "json").stdout)["workers"]) == 1


def test_arguments_instead_of_the_files(plan: Callable[..., dict[str, Any]], write: Write) -> None:
    write("hello.py", "print('hi')")
    write("job.yaml", "script: hello.py\nargs: [a, b]\n")
    assert plan("-f", "job.yaml")["args"] == ["a", "b"]
    assert plan("-f", "job.yaml", "--", "--lr", "1")["args"] == ["--lr", "1"]
    job = plan("-f", "job.yaml", "--", "1", "x")
    assert (job["script"], job["args"], job["command"]) == ("hello.py", ["1", "x"], [])
    assert plan("-f", "job.yaml", "--set", "args=[c]")["args"] == ["c"]


def test_another_script_under_the_files_settings(plan: Callable[..., dict[str, Any]], write: Write) -> None:
    write("hello.py", "print('hi')")
    write("other.py", "print('hi')")
    write("job.yaml", "script: hello.py\nargs: [a]\nworkers: 2\n")
    job = plan("-f", "job.yaml", "other.py")
    assert (job["script"], job["args"], job["workers"]) == ("other.py", [], 2)


def test_the_project_of_the_script_speaks_not_that_of_the_working_folder(
    plan: Callable[..., dict[str, Any]], write: Write
) -> None:
    write("pyproject.toml", "[tool.echelon]\nworkers = 2\n")
    write("other/pyproject.toml", "[tool.echelon]\nworkers = 3\n")
    write("other/hello.py", "print('hi')")
    assert plan("other/hello.py")["workers"] == 3
    assert plan("--", "cat")["workers"] == 2


def test_where_to_run_can_come_from_the_environment(
    write: Write, monkeypatch: pytest.MonkeyPatch, plan: Callable[..., dict[str, Any]]
) -> None:
    write("pyproject.toml", "[tool.echelon]\non = 'local'\n")
    write("hello.py", "print('hi')")
    monkeypatch.setenv("ECHELON_ON", "k8s")
    assert main.call(["run", "hello.py"]) == 119  # the project's default is weaker
    assert main.call(["ps"]) == 119
    assert plan("--on", "local", "hello.py")["script"] == "hello.py"
    monkeypatch.setenv("ECHELON_ON", "mars")
    assert main.call(["run", "hello.py"]) == 110


@pytest.mark.parametrize("name", ["dry_run", "detach"])
def test_how_to_run_can_stand_in_the_file(cli: Call, hello: str, write: Write, home: Path, name: str) -> None:
    write("job.yaml", f"name: fm\nscript: hello.py\n{name}: true\n")
    done = cli("run", "-f", "job.yaml")
    assert done.returncode == 0
    assert done.stdout.startswith({"dry_run": "run fm on this machine", "detach": "fm\n"}[name])


def test_a_projects_place_is_that_of_every_command(cli: Callable[..., Any], write: Write) -> None:
    """A run that went to the cluster because the project says so is looked for there."""
    write("pyproject.toml", "[tool.echelon]\non = 'k8s'\n")
    asked = (("ps",), ("status", "x"), ("logs", "x"), ("volume", "ls"), ("top",), ("exec", "x", "--", "ls"))
    for words in asked:
        done = cli(*words)
        assert done.returncode == 119, (words, done.stderr)
        assert "kubeconfig" in done.stderr
    assert cli("ps", "--on", "local").returncode == 0
