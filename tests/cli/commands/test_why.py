"""`echelon why`: what a run is doing, with real ranks on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli import executor
from tests.cli.conftest import wait_for
from tests.cli.nvidia_smi import StandIn
from tests.conftest import wait_until

from echelon.handle import Run

Call = Callable[..., subprocess.CompletedProcess[str]]
FAILS = "import torch_that_is_not_there\n"
LATE = Path(__file__).parents[2] / "agent" / "gang" / "late" / "ranks.py"


def reasons(call: Call, *words: str) -> list[dict[str, Any]]:
    done = call("why", *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["reasons"]
    return found


@pytest.mark.core
def test_why_a_run_failed(call: Call, write: Callable[..., Path]) -> None:
    script = write("train.py", FAILS)
    assert call("run", "--name", "fm", "-n", "2", "--python", sys.executable, str(script)).returncode == 1
    text = call("why").stdout.splitlines()
    assert text[0] == "fm"
    assert text[1].startswith("  it failed after ")
    assert text[1].endswith(": ModuleNotFoundError: No module named 'torch_that_is_not_there'")
    assert text[2].startswith("    first to fail: rank ")
    (found,) = reasons(call, "fm")
    assert (found["kind"], len(found["ranks"])) == ("failed", 1)


def test_of_one_that_waits_and_one_that_runs_and_one_that_has_ended(
    gpus: StandIn, call: Call, stay: str
) -> None:
    gpus.show(1)
    for name in ("first", "second"):
        assert call("run", "-d", "--name", name, "--gpus", "1", "--procs", "1", stay).returncode == 0
    wait_for("runs/first/pid-0")
    (first,), (second,) = reasons(call, "first"), reasons(call, "second")
    assert first["kind"] == "running"
    assert second["kind"] == "queued"
    assert "GPU" in second["text"]
    Path("go").touch()
    assert call("wait", "second").returncode == 0
    assert [each["kind"] for each in reasons(call, "second")] == ["succeeded"]


def test_of_a_run_that_does_not_exist(call: Call) -> None:
    assert call("why", "nothing").returncode == 111


def test_one_that_was_started_again_says_why(call: Call, write: Callable[..., Path]) -> None:
    script = write("once.py", "import os, sys\nsys.exit(int(os.environ['ECHELON_RESTART'] == '0'))\n")
    assert call("run", "--name", "fm", "--restarts", "1", str(script)).returncode == 0
    restarts, ended = reasons(call, "fm")
    assert (restarts["kind"], ended["kind"]) == ("restarts", "succeeded")
    assert restarts["details"] == ["restart 1: rank 0 exited with code 1"]


def test_of_a_run_that_is_made_of_runs(home: Path, call: Call, write: Callable[..., Path]) -> None:
    write("load.py", "print('loaded')\n")
    write("train.py", FAILS)
    run: Run = executor.start("book", "load", "train")
    run.wait()
    found = reasons(call, "book")
    assert {each["part"] for each in found} == {"", "train"}
    assert all(each["kind"] == "failed" for each in found)
    assert "step train: it failed after" in call("why", "book").stdout
    (step,) = reasons(call, "book/train")
    assert (step["kind"], step["part"]) == ("failed", "")


@pytest.mark.slow
def test_the_rank_that_comes_late_is_named(call: Call) -> None:
    words = ("--framework", "torch", "--python", sys.executable, "-n", "4")
    assert call("run", "-d", "--name", "fm", *words, str(LATE), "asleep").returncode == 0
    try:
        wait_until(lambda: reasons(call, "fm")[0]["kind"] == "slow", "the rank that is late", 120.0)
        (found,) = reasons(call, "fm")
        assert found["ranks"] == [3]
        assert "rank 3 comes last in " in found["text"]
        text = call("top", "fm", "--once").stdout
        assert "rank 3 comes last in " in text
        (row,) = [line for line in text.splitlines() if "last in" in line and line.startswith("3")]
        assert row.split()[1] == "3"
    finally:
        call("stop", "--now", "fm")


@pytest.mark.slow
def test_of_ranks_that_are_alike_none_is_named(call: Call) -> None:
    words = ("--framework", "torch", "--python", sys.executable, "-n", "2")
    assert call("run", "-d", "--name", "fm", *words, str(LATE), "even").returncode == 0
    try:

        def known() -> bool:
            workers = json.loads(call("top", "fm", "-o", "json").stdout)["workers"]
            return any(rank["late"] for worker in workers for rank in worker["ranks"])

        wait_until(known, "how late each comes", 120.0)
        assert [each["kind"] for each in reasons(call, "fm")] == ["running"]
    finally:
        call("stop", "--now", "fm")
