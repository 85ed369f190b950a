"""When a gang is stuck: the leader's decision, without sockets or clocks."""

from __future__ import annotations

from tests.agent.gangs import NOW, end, events, running, said, stop_all

STALL = 600.0


def test_a_gang_is_stuck_when_no_worker_does_anything() -> None:
    made = running(2, stall=STALL)
    made.quiet(0, STALL + 1, NOW)
    assert made.phase == "running", "of the other worker nothing is known"
    made.quiet(1, STALL - 1, NOW)
    assert made.phase == "running"
    made.quiet(1, STALL, NOW)
    assert made.phase == "stopping"
    assert events(made) == ["note"]
    assert [(worker, message["stacks"]) for worker, message in made.outbox] == [(0, "all"), (1, "all")]
    made.stopped(0, 0, NOW, {"0": "sleep (train.py:3)"})
    made.stopped(1, 0, NOW, {"1": "recv (train.py:9)"})
    assert made.verdict is not None
    assert (made.verdict["outcome"], made.verdict["exit_code"]) == ("failed", 124)
    cause = made.verdict["cause"]
    assert isinstance(cause, dict)
    assert cause["kind"] == "stuck"
    assert "600 s" in cause["summary"]
    assert cause["peers"] == "rank 0 was in sleep (train.py:3), rank 1 was in recv (train.py:9)"


def test_who_does_something_again_was_not_stuck() -> None:
    made = running(2, stall=STALL)
    made.quiet(0, STALL, NOW)
    made.quiet(0, 3.0, NOW)
    made.quiet(1, STALL, NOW)
    assert made.phase == "running"


def test_without_a_time_for_it_no_gang_is_stuck() -> None:
    made = running(1)
    made.quiet(0, 1e6, NOW)
    assert made.phase == "running"


def test_what_is_no_number_says_nothing() -> None:
    made = running(1, stall=STALL)
    for said_ in (None, "700", [700]):
        made.quiet(0, said_, NOW)
    assert made.phase == "running"


def test_a_worker_whose_ranks_have_ended_well_is_not_waited_for() -> None:
    made = running(2, stall=STALL)
    made.ended_well(0, 1, 2.0, NOW)
    made.done(1, 0, NOW)
    made.quiet(0, STALL, NOW)
    assert made.phase == "stopping"
    made.stopped(0, 0, NOW, {"0": "recv (train.py:9)"})
    assert made.verdict is not None
    cause = made.verdict["cause"]
    assert isinstance(cause, dict)
    assert "rank 1 had exited 0 after 2 s; rank 0 was still running" in cause["peers"]


def test_a_stuck_gang_restarts_while_restarts_are_left() -> None:
    made = running(2, stall=STALL, restarts=1)
    for worker in (0, 1):
        made.quiet(worker, STALL, NOW)
    stop_all(made, 0, 1)
    assert events(made) == ["note", "failed", "restarting"]
    said(made)
    for worker in (0, 1):
        made.ready(worker, 1, [1], NOW)
    assert made.phase == "running"
    made.quiet(0, STALL, NOW)
    assert made.phase == "running", "how quiet the other was before does not count any more"
    made.quiet(1, STALL, NOW)
    stop_all(made, 0, 1)
    assert made.verdict is not None
    assert made.verdict["exit_code"] == 124


def test_what_fails_when_a_stuck_gang_is_ended_is_not_its_cause() -> None:
    made = running(2, stall=STALL)
    for worker in (0, 1):
        made.quiet(worker, STALL, NOW)
    made.failed(0, 0, end(0), NOW)
    stop_all(made, 0, 1)
    assert made.verdict is not None
    cause = made.verdict["cause"]
    assert isinstance(cause, dict)
    assert (cause["kind"], [each["rank"] for each in cause["others"]]) == ("stuck", [0])


def test_a_stop_of_the_user_is_no_stall() -> None:
    made = running(1, stall=STALL)
    made.stop_requested("stopped", "by ann", NOW)
    made.quiet(0, STALL, NOW)
    stop_all(made, 0)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "stopped"
