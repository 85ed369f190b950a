"""Workers that are told to leave: with which code, and what becomes of the run."""

from __future__ import annotations

import signal
import time

import pytest
from tests.agent.pods import UP, Pods
from tests.conftest import wait_until

from echelon.agent.task import INTERRUPTED, LEFT_FOR_GOOD, RUN_OVER

TWICE = """
import os, sys, time
print("up", os.environ["ECHELON_RESTART"], flush=True)
while int(os.environ["ECHELON_RESTART"]) < 2:
    time.sleep(0.1)
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_is_told_to_leave_twice_costs_no_restart(pods: Pods, victim: int) -> None:
    """Its cluster counts the pods that it took away; a new leader learns of the other workers' from them."""
    pods.script(TWICE, workers=2, restarts=1)
    pods.start_all()
    for restart in (0, 1):
        wait_until(
            lambda restart=restart: all(f"up {restart}" in pods.said(worker) for worker in (0, 1)),  # type: ignore[misc]
            f"both ranks to be up for the {restart + 1}. time",
        )
        pods.processes[victim].terminate()
        assert pods.code(victim) == INTERRUPTED
        pods.start(
            victim, failures=restart + 1, env={"ECHELON_FAILURES": "0", "ECHELON_EVICTIONS": f"{restart + 1}"}
        )
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert [event["spared"] for event in pods.events(0) if event["kind"] == "restarting"][-1] == 2


def test_the_only_worker_is_told_to_leave_twice(pods: Pods) -> None:
    pods.script(TWICE, restarts=1)
    pods.start(0)
    for restart in (0, 1):
        wait_until(lambda restart=restart: f"up {restart}" in pods.said(0), "the rank to be up")  # type: ignore[misc]
        pods.processes[0].terminate()
        assert pods.code(0) == INTERRUPTED
        pods.start(
            0, failures=restart + 1, env={"ECHELON_FAILURES": "0", "ECHELON_EVICTIONS": f"{restart + 1}"}
        )
    assert pods.code(0) == 0


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.1, 0.15, 0.2, 0.3])
def test_sigterm_at_the_very_beginning(pods: Pods, moment: float) -> None:
    """Before Python itself is up nobody hears it; then it leaves, with a word if it has begun to speak."""
    pods.script(UP, restarts=1)
    pods.start(0)
    time.sleep(moment)
    pods.processes[0].terminate()
    assert pods.code(0) in (INTERRUPTED, -signal.SIGTERM)
    if pods.log(0):
        assert pods.kinds()[-1] == "worker-ended"
        assert pods.last_words() == {"reason": "its agent was told to leave (SIGTERM)"}


def test_sigterm_while_the_gang_gathers(pods: Pods) -> None:
    pods.script(UP, workers=3)
    pods.start(0)
    pods.start(1)
    pods.wait_for("worker-started", of=1)
    for worker in (1, 0):
        pods.processes[worker].terminate()
        assert pods.code(worker) == INTERRUPTED
        assert pods.last_words(worker) == {"reason": "its agent was told to leave (SIGTERM)"}
        assert (pods.events(worker)[-1]["kind"], pods.events(worker)[-1]["exit_code"]) == (
            "worker-ended",
            194,
        )
    lost = [event for event in pods.events(0) if event["kind"] == "worker-lost"]
    assert [(event["worker"], event["reason"]) for event in lost][:1] == [
        (1, "its agent was told to leave (SIGTERM)")
    ]


@pytest.mark.core
def test_sigterm_to_a_member_whose_ranks_run(pods: Pods) -> None:
    pods.script(UP, workers=2)
    pods.start_all()
    pods.wait_up(0, 1)
    pods.processes[1].terminate()
    assert pods.code(0) == RUN_OVER
    assert pods.last_words()["cause"]["summary"] == "worker 1 was lost: its agent was told to leave (SIGTERM)"
    assert pods.code(1) in (LEFT_FOR_GOOD, 0)  # it may hear of the end before its own ranks are gone


def test_sigterm_to_the_leader_when_no_restart_is_left_ends_the_run_with_that_cause(pods: Pods) -> None:
    pods.script(UP, workers=2)
    pods.start_all()
    pods.wait_up(0, 1)
    pods.processes[0].terminate()
    assert pods.code(0) == LEFT_FOR_GOOD
    assert pods.code(1) == 0
    assert pods.last_words()["cause"]["summary"] == "worker 0 was lost: its agent was told to leave (SIGTERM)"
    assert pods.kinds()[-1] == "worker-ended"


@pytest.mark.parametrize("first", [0, 1])
def test_none_of_the_workers_of_a_suspended_job_leaves_with_a_code_that_fails_it(
    pods: Pods, first: int
) -> None:
    """All are told to leave at about the same time, and begin anew when the Job goes on."""
    pods.script(UP, workers=2)
    pods.start_all()
    pods.wait_up(0, 1)
    for worker in (first, 1 - first):
        pods.processes[worker].terminate()
        time.sleep(0.5)  # the leader has its verdict by then
    assert pods.code(0) == LEFT_FOR_GOOD
    assert pods.code(1) in (LEFT_FOR_GOOD, 0)


def test_sigterm_to_the_leader_with_restarts_left_lets_another_go_on(pods: Pods) -> None:
    script = "import os, sys\nif os.environ['ECHELON_RESTART'] == '1': sys.exit(print('again'))\n"
    pods.script(script + UP, workers=2, restarts=1)
    pods.start_all()
    pods.wait_up(0, 1)
    pods.processes[0].terminate()
    assert pods.code(0) == INTERRUPTED
    assert "verdict" not in pods.kinds()
    assert pods.kinds()[-1] == "worker-ended"
    pods.start(0, failures=1)
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert pods.said(0) == ["again"]
    assert pods.said(1) == ["up", "again"]
