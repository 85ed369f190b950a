"""Roles that are whole worker descriptions, on this machine: each with its own command and variables."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]

TELL = """
    import json, os, pathlib, sys
    rank = os.environ["ECHELON_RANK"]
    told = {"args": sys.argv[1:], "env": {key: os.environ.get(key) for key in ("A", "B", "RANK")}}
    pathlib.Path(os.environ["ECHELON_OUTPUT"], f"told-{rank}.json").write_text(json.dumps(told))
"""
AFTER_SERVING = """
    import time
    while not list(pathlib.Path("runs/fm").glob("served-*")):
        time.sleep(0.05)
"""
SERVE = """
    import os, pathlib, time
    pathlib.Path(os.environ["ECHELON_OUTPUT"], "served-" + os.environ["B"]).touch()
    time.sleep(600)  # until the workers have ended
"""


def told(rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"runs/fm/told-{rank}.json").read_text())
    return found


def test_a_role_with_its_own_command_serves_until_the_workers_have_ended(cli: Call, write: Write) -> None:
    write("tell.py", TELL + AFTER_SERVING)
    write("serve.py", SERVE)
    Path("job.yaml").write_text(
        """\
name: fm
script: tell.py
args: [--epochs, 3]
workers: 2
framework: plain
env: {A: all, B: theirs}
roles:
  ps:
    command: [python3, serve.py]
    env: {B: mine}
    image: my/server:2
    template: {spec: {hostNetwork: true}}
"""
    )
    done = cli("run", "-f", "job.yaml")
    assert done.returncode == 0, done.stderr
    assert Path("runs/fm/served-mine").exists()
    for rank in (0, 1):
        assert told(rank) == {
            "args": ["--epochs", "3"],
            "env": {"A": "all", "B": "theirs", "RANK": str(rank)},
        }
    assert "role ps: image has no effect on this machine\n" in done.stderr
    assert "role ps: template has no effect on this machine\n" in done.stderr
    assert "3 workers, plain" in done.stderr


def test_a_role_with_other_arguments(cli: Call, write: Write) -> None:
    write("tell.py", TELL)
    Path("job.yaml").write_text(
        """\
name: fm
script: tell.py
args: [train]
framework: plain
roles:
  chief: {args: [lead], procs: 2}
"""
    )
    assert cli("run", "-f", "job.yaml").returncode == 0
    assert [told(rank)["args"] for rank in (0, 1, 2)] == [["lead"], ["lead"], ["train"]]
    status = json.loads(cli("status", "fm", "-o", "json").stdout)
    assert [(each["role"], each["ranks"]) for each in status["workers"]] == [
        ("chief", [0, 1]),
        ("worker", [2]),
    ]


def test_the_preview_shows_each_groups_command_and_variables(cli: Call, write: Write) -> None:
    write("tell.py", TELL)
    Path("job.yaml").write_text(
        "name: fm\nscript: tell.py\nframework: plain\nenv: {A: all}\n"
        "roles: {ps: {command: [./serve, '{output}'], env: {A: mine}}}\n"
    )
    shown = cli("run", "-f", "job.yaml", "--dry-run").stdout
    workers, ps = shown.split("1 x ps")
    assert "A=all" in workers
    assert "A=mine" in ps
    assert "./serve" in ps
    assert "A=all" not in ps


@pytest.mark.parametrize("where", ["record.json", "plan.json", "task.json"])
def test_no_secret_is_written_with_a_role(
    cli: Call, write: Write, monkeypatch: pytest.MonkeyPatch, home: Path, where: str
) -> None:
    monkeypatch.setenv("B", "a-secret-value")
    write("tell.py", TELL)
    Path("job.yaml").write_text(
        "name: fm\nscript: tell.py\nframework: plain\nsecret: [B]\n"
        "roles: {chief: {command: [python3, tell.py]}}\n"
    )
    assert cli("run", "-f", "job.yaml").returncode == 0
    assert [told(rank)["env"]["B"] for rank in (0, 1)] == ["a-secret-value"] * 2
    (written,) = home.rglob(where)
    assert "a-secret-value" not in written.read_text()
