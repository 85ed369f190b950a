"""A client that fetches says so to every worker: whoever of the gang is lost, the others keep what they have
for as long as the client says so, and the leader leaves last.
"""

from __future__ import annotations

import json
import time

import pytest
from tests.agent.pods import Pods

HOLD = 1.0  # seconds
AT_WORK = json.dumps({"client": "ann", "seconds": 300.0})
DONE = json.dumps({"client": "ann", "seconds": 0.0})
ENDS_WHEN_TOLD = """
import os, time
while not os.path.exists({flag!r}):
    time.sleep(0.02)
"""


def hold_for_a_client(pods: Pods, *asked: int) -> None:
    """Three workers whose run is over, and a client that fetches: it came before there was anything to hold,
    since later may be too late on a busy machine.
    """
    flag = pods.folder / "end"
    pods.script(ENDS_WHEN_TOLD.format(flag=str(flag)), workers=3, hold=HOLD, heartbeat=0.2, lost_after=5.0)
    pods.start_all()
    for worker in range(3):
        pods.wait_for("worker-running", worker, of=worker)
    for worker in asked:
        assert pods.order(worker, "fetch", AT_WORK).returncode == 0
    flag.touch()
    for worker in range(3):
        pods.wait_for("worker-ended", worker, of=worker)


def stay(pods: Pods, *workers: int) -> bool:
    """Whether workers are there after much more than their time, which is the subject."""
    time.sleep(4 * HOLD)
    return all(pods.processes[worker].poll() is None for worker in workers)


def test_each_worker_leaves_by_its_own_time_and_the_leader_last(pods: Pods) -> None:
    hold_for_a_client(pods, 1)
    assert pods.code(2) == 0
    assert stay(pods, 0, 1), "its end may end the pods of others"
    assert pods.order(1, "fetch", DONE).returncode == 0
    assert [pods.code(worker) for worker in range(2)] == [0, 0]


@pytest.mark.core
def test_a_leader_that_is_lost_in_a_fetch_costs_nobody_elses_results(pods: Pods) -> None:
    hold_for_a_client(pods, 0, 1, 2)
    pods.processes[0].kill()
    pods.code(0)
    assert stay(pods, 1, 2)
    for worker in (1, 2):
        assert pods.order(worker, "release", DONE).returncode == 0
        assert pods.code(worker) == 0


def test_the_leader_that_replaces_it_stays_for_its_members(pods: Pods) -> None:
    hold_for_a_client(pods, 0, 1, 2)
    pods.processes[0].kill()
    pods.code(0)
    pods.start(0, failures=1)
    pods.wait_for("holding")
    assert stay(pods, 0, 1, 2), "longer than any of them would hold by itself"
    assert pods.order(0, "release", DONE).returncode == 0
    assert [pods.code(worker) for worker in range(3)] == [0, 0, 0]
