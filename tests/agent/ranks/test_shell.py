"""The agent's `shell`: a command with a rank's environment, beside agents that live as in pods."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import Any

import pytest
from tests.agent.pods import UP, Pods
from tests.conftest import PATIENCE, need_python, wait_until

SHOW = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
STAY = f"""
import sys, time
{SHOW}
sys.stdout.flush()
time.sleep(600)
"""
CONTAINER = {"PATH": os.environ["PATH"], "TOKEN": "hush-4711"}


def enter(
    pods: Pods, worker: int, rank: int, *command: str, python: str = sys.executable, **more: str
) -> subprocess.CompletedProcess[str]:
    """As `pods/exec` does it: with the container's environment, from its root."""
    words = ["shell", str(pods.place(worker) / "task.json"), str(rank), *command]
    return subprocess.run(
        [python, str(pods.archive), *words],
        env={**CONTAINER, **more},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def shown_by(pods: Pods, worker: int, rank: int) -> Any:
    lines = [line for line in pods.said(worker) if f'"ECHELON_RANK": "{rank}"' in line]
    return json.loads(lines[0]) if lines else None


@pytest.mark.parametrize("version", ["3.8", None])
def test_the_environment_and_the_folder_are_the_rank_s(pods: Pods, version: str | None) -> None:
    python = sys.executable if version is None else need_python(version)
    pods.script(STAY, workers=2, procs=2, env={"MINE": "1", "TERM": "dumb"}, hidden=["TOKEN"])
    pods.start_all(env={"TOKEN": CONTAINER["TOKEN"]})
    for worker, rank in ((0, 1), (1, 2)):
        wait_until(lambda: shown_by(pods, worker, rank), "the rank to show its environment")  # noqa: B023
        done = enter(pods, worker, rank, sys.executable, "-c", SHOW, python=python, TERM="vt100")
        assert done.returncode == 0, done.stderr
        (found, where), (expected, folder) = json.loads(done.stdout), shown_by(pods, worker, rank)
        assert found.pop("TERM") == "vt100"
        assert expected.pop("TERM") == "dumb"
        assert found == expected
        assert (found["TOKEN"], found["MINE"], where) == (CONTAINER["TOKEN"], "1", folder)
        kept = pods.place(worker) / "state" / f"rank-{rank}.environment.json"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert CONTAINER["TOKEN"] not in kept.read_text()


def test_a_worker_that_holds_its_results_can_be_entered(pods: Pods) -> None:
    pods.script("print('done')", hold=3600.0, env={"MINE": "1"})
    pods.start_all()
    pods.wait_for("holding")
    done = enter(pods, 0, 0, "sh", "-c", 'echo "$MINE $ECHELON_RANK"; pwd; ls $ECHELON_OUTPUT')
    assert done.stdout.splitlines() == ["1 0", str(pods.place(0)), "logs"]


def test_a_worker_whose_ranks_have_not_started_can_be_entered(pods: Pods) -> None:
    pods.script(UP, workers=2)
    pods.start(1)  # the leader is not there yet
    done = enter(pods, 1, 1, "sh", "-c", 'echo "$TOKEN"; pwd; exit 3')
    assert (done.returncode, done.stdout) == (3, f"{CONTAINER['TOKEN']}\n{pods.place(1)}\n")
    assert "rank 1 has not started here" in done.stderr


def test_what_cannot_be_run(pods: Pods) -> None:
    pods.script(UP)
    pods.start_all()
    pods.wait_up(0)
    done = enter(pods, 0, 0, "no-such-command")
    assert (done.returncode, done.stderr) == (127, "no-such-command: No such file or directory\n")
    done = enter(pods, 0, 0, "/")
    assert (done.returncode, done.stderr) == (126, "/: Permission denied\n")
    assert enter(pods, 0, 0, SHELL="/no/such/shell").returncode == 0  # another one, whose input has ended
