"""Two detached runs, each with half of the GPUs that both need: one gives way, and both run to their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Terminal

from echelon.agent.task import GAVE_WAY

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# The command line with a shorter time. The times of the two runs are far apart: what a gang needs to start,
# once it has its GPUs, is not short beside a few seconds, and both would give way again and again.
SOON, LATE = 10.0, 120.0
PROGRAM = """
import sys
from echelon.engines.kubernetes.render import task
task.GIVE_WAY = float(sys.argv.pop(1))
from echelon.cli.main import main
main()
"""
CORDON = "node.kubernetes.io/unschedulable"


def test_two_gangs_that_hold_half_of_the_gpus_each(
    terminal: Terminal, give_gpus: Callable[..., None], real_nodes: list[str]
) -> None:
    first, second = real_nodes[:2]
    give_gpus(first, 1)
    give_gpus(second, 1)
    terminal.write("train.py", "print('all there')")
    cordon(terminal, second, closed=True)
    try:
        submit(terminal, "ann", SOON)
        wait_until(lambda: first in nodes_of(terminal, "ann"), "a worker of ann's run", PATIENCE)
        submit(terminal, "bob", LATE, "--toleration", CORDON)
        wait_until(lambda: second in nodes_of(terminal, "bob"), "a worker of bob's run", PATIENCE)
    finally:
        cordon(terminal, second, closed=False)

    for run in ("ann", "bob"):
        wait_until(lambda run=run: state_of(terminal, run) == "succeeded", f"the end of {run}", PATIENCE)
    # A run has succeeded when its leader says so; the kubelet tells of its pods' ends a moment later.
    wait_until(lambda: codes_of(terminal, "ann", "bob").count(0) == 4, "all pods to have ended", PATIENCE)
    assert set(codes_of(terminal, "ann", "bob")) == {0, GAVE_WAY}
    for run in ("ann", "bob"):
        assert terminal.status(run)["restarts"] == 0
        terminal.check_removal(run)


def submit(terminal: Terminal, run: str, give_way: float, *more: str) -> None:
    words = ("run", "-d", "--name", run, "--image", terminal.image, "-n", "2", "--gpus", "1", "--keep", "0")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(give_way), *words, "--linger", "1", *more, "train.py"],
        cwd=terminal.folder,
        env=terminal.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def cordon(terminal: Terminal, node: str, *, closed: bool) -> None:
    terminal.kubectl("cordon" if closed else "uncordon", node)


def nodes_of(terminal: Terminal, run: str) -> list[str]:
    found = (pod["spec"].get("nodeName") for pod in terminal.pods(run))
    return [node for node in found if node]


def state_of(terminal: Terminal, run: str) -> str:
    return str(terminal.status(run)["state"])


def codes_of(terminal: Terminal, *runs: str) -> list[int]:
    return [_ended(pod)["exitCode"] for run in runs for pod in terminal.pods(run) if _ended(pod)]


def _ended(pod: dict[str, Any]) -> dict[str, Any]:
    statuses = pod["status"].get("containerStatuses") or [{}]
    found: dict[str, Any] = (statuses[0].get("state") or {}).get("terminated") or {}
    return found
