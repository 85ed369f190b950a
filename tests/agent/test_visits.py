"""A client that fetches from one worker visits the whole gang: whoever of it is lost, the others keep what
they have for as long as the client is there, and for their own time to linger after that.
"""

from __future__ import annotations

import json
import time

import pytest
from tests.agent.pods import Pods

HOLD = 1.0  # seconds
VISIT = json.dumps({"client": "ann", "seconds": 300.0})
GONE = json.dumps({"client": "ann", "seconds": 0.0})
ENDS_WHEN_TOLD = """
import os, time
while not os.path.exists({flag!r}):
    time.sleep(0.02)
"""


def hold_while_visited(pods: Pods, visited: int) -> None:
    """Three workers whose run is over, and a client that fetches: it came before there was anything to hold,
    since later may be too late on a busy machine.
    """
    flag = pods.folder / "end"
    pods.script(ENDS_WHEN_TOLD.format(flag=str(flag)), workers=3, hold=HOLD, heartbeat=0.2, lost_after=5.0)
    pods.start_all()
    for worker in range(3):
        pods.wait_for("worker-running", worker, of=worker)
    assert pods.order(visited, "fetch", VISIT).returncode == 0
    flag.touch()
    for worker in range(3):
        pods.wait_for("worker-ended", worker, of=worker)


def stay(pods: Pods, *workers: int) -> bool:
    """Whether workers are there after much more than their time to linger, which is the subject."""
    time.sleep(4 * HOLD)
    return all(pods.processes[worker].poll() is None for worker in workers)


@pytest.mark.parametrize("visited", [0, 1])
def test_nobody_leaves_while_a_client_visits_any_of_them(pods: Pods, visited: int) -> None:
    hold_while_visited(pods, visited)
    assert stay(pods, 0, 1, 2)
    assert pods.order(visited, "fetch", GONE).returncode == 0
    assert [pods.code(worker) for worker in range(3)] == [0, 0, 0], "their own time passes after that"


@pytest.mark.core
def test_a_leader_that_is_lost_in_a_visit_costs_nobody_elses_results(pods: Pods) -> None:
    hold_while_visited(pods, 0)
    pods.processes[0].kill()
    pods.code(0)
    assert stay(pods, 1, 2)
    for worker in (1, 2):
        assert pods.order(worker, "release", GONE).returncode == 0
        assert pods.code(worker) == 0


def test_the_leader_that_replaces_it_knows_of_the_visit(pods: Pods) -> None:
    hold_while_visited(pods, 0)
    assert stay(pods, 0, 1, 2), "longer than any of them would hold by itself"
    pods.processes[0].kill()
    pods.code(0)
    pods.start(0, failures=1)
    pods.wait_for("holding")
    assert stay(pods, 0, 1, 2)
    assert pods.order(0, "release", GONE).returncode == 0
    assert [pods.code(worker) for worker in range(3)] == [0, 0, 0]
