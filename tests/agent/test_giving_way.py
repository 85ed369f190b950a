"""Agents of a gang that is not whole leave together, and leave nothing that counts as a failure."""

from __future__ import annotations

import socket

import pytest
from tests.agent.pods import UP, Pods
from tests.conftest import PATIENCE

from echelon.agent.task import GAVE_WAY

LONG = 1e6  # seconds that no test waits for


def test_all_workers_of_a_gang_that_is_not_whole_leave(pods: Pods) -> None:
    pods.script(UP, workers=3, join_timeout=3600)
    pods.start(1, give_way=LONG)  # the time is the leader's to draw, not theirs
    with socket.create_server(("127.0.0.1", pods.port)) as listener:
        listener.settimeout(PATIENCE)
        listener.accept()[0].close()  # it looks for its leader by now, once a second at least
    pods.start(0, give_way=10.0)
    assert [pods.code(worker) for worker in (0, 1)] == [GAVE_WAY, GAVE_WAY]
    told = [event for event in pods.events(0) if event["kind"] == "gave-way"]
    assert len(told) == 1
    assert "worker 2 was missing" in told[0]["reason"]
    assert not {"worker-ended", "worker-lost", "verdict", "failed"} & set(pods.kinds(0))
    for worker in (0, 1):
        assert "worker 2 was missing" in pods.last_words(worker)["reason"]


def test_a_worker_without_a_leader_leaves(pods: Pods) -> None:
    pods.script(UP, workers=2, join_timeout=3600)
    pods.start(1, give_way=0.5)
    assert pods.code(1) == GAVE_WAY
    assert "worker 0 was missing" in pods.last_words(1)["reason"]


def test_a_worker_that_lost_its_leader_before_the_gang_was_whole_leaves(pods: Pods) -> None:
    pods.script(UP, workers=3, join_timeout=3600)
    leader = pods.start(0, give_way=LONG)
    pods.wait_for("worker-started")
    pods.start(1, give_way=10.0)
    pods.wait_for("worker-started", of=1)
    leader.kill()
    assert pods.code(1) == GAVE_WAY


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_gang_that_gave_way_starts_as_if_for_the_first_time(pods: Pods, restarts: int) -> None:
    """Its pods were replaced, and none of that counts: not against its restarts, nor as a restart."""
    script = "import os; print('restart', os.environ['ECHELON_RESTART'])"
    pods.script(script, workers=2, restarts=restarts, give_way=LONG)
    for worker in (1, 0):
        pods.start(worker, env={"ECHELON_EVICTIONS": str(3 + worker)})
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert pods.said(0) == ["restart 0"]
    assert "restarting" not in pods.kinds(0)
