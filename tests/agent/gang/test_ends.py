"""The leader's decisions where another led before it, and ends that no restart would mend."""

from __future__ import annotations

from tests.agent.gangs import NOW, UNFIT, end, events, gang, running, said, stop_all

from echelon.agent.gang.decisions import REUNION


def test_a_leader_without_a_restart_left_waits_for_nobody() -> None:
    made = gang(4, restarts=0)
    made.joined(0, "a", 0, NOW)
    assert made.verdict is not None
    words = "worker 0 was lost: its agent had to be replaced, and no restart is left"
    assert made.verdict["cause"]["summary"] == words  # type: ignore[index]
    assert not made.has_run


def test_a_leader_that_learns_from_a_peer_that_no_restart_is_left_does_not_wait_long() -> None:
    made = gang(4, restarts=1)
    made.joined(0, "a", -1, NOW)
    made.joined(3, "d", 0, NOW)
    assert made.verdict is None
    made.joined(2, "c", 1, NOW)
    made.tick(NOW + REUNION)
    assert made.verdict is not None


def test_the_time_limit_counts_from_the_first_start() -> None:
    """A new leader learns from its peers how long the run has been going; the oldest memory counts."""
    made = gang(2, timeout=100, restarts=9)
    made.joined(0, "a", 0, NOW)
    made.joined(1, "b", 0, NOW, elapsed=60.0)
    for worker in (0, 1):
        made.ready(worker, 1, [], NOW + 10)
    start = made.outbox[-1][1]
    assert (start["say"], start["elapsed"]) == ("start", 70.0)
    made.tick(NOW + 39)
    assert made.phase == "running"
    made.tick(NOW + 40)
    assert made.phase == "stopping"
    stop_all(made, 0, 1)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "timed-out"


def test_the_time_limit_may_pass_before_the_gang_is_whole_again() -> None:
    made = gang(3, timeout=100, restarts=9)
    made.joined(1, "b", 0, NOW, elapsed=200.0)
    deadline = made.next_deadline()
    assert deadline is not None
    assert deadline <= NOW
    made.tick(NOW)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "timed-out"


def test_a_worker_that_cannot_be_made_ready_ends_the_run_whatever_restarts_are_left() -> None:
    made = gang(3, restarts=5)
    made.joined(0, "a", -1, NOW)
    made.joined(1, "b", -1, NOW)
    made.unfit(UNFIT, NOW)
    assert events(made) == ["failed"]
    assert made.verdict is not None
    assert (made.verdict["cause"], made.verdict["exit_code"]) == (UNFIT, 116)
    assert not made.has_run


def test_a_replacement_that_cannot_be_made_ready_comes_while_the_others_stop() -> None:
    made = running(3, restarts=5)
    made.lost(1, "gone", NOW)
    made.joined(1, "b", -1, NOW)
    made.unfit(UNFIT, NOW)
    assert made.verdict is None
    stop_all(made, 0, 2)
    assert made.verdict is not None
    assert made.verdict["cause"] == UNFIT
    assert made.has_run


def test_somebody_loses_patience_with_a_stop() -> None:
    made = running(2, grace=1000)
    made.stop_requested("stopped", "gently", NOW)
    assert [message["signal"] for _, message in made.outbox] == ["SIGTERM", "SIGTERM"]
    said(made)
    made.stop_requested("stopped", "at once", NOW, signal="SIGKILL")
    assert [message["signal"] for _, message in made.outbox] == ["SIGKILL", "SIGKILL"]
    deadline = made.next_deadline()
    assert deadline is not None
    made.tick(deadline)
    assert deadline < NOW + 10
    assert made.verdict is not None
    assert made.verdict["reason"] == "gently"


def test_an_interrupt_leaves_time_for_two_signals_and_never_follows_a_harder_one() -> None:
    made = running(2, grace=10)
    made.stop_requested("stopped", "Ctrl-C", NOW, signal="SIGINT")
    assert [message["signal"] for _, message in made.outbox] == ["SIGINT", "SIGINT"]
    assert made.next_deadline() == NOW + 25
    said(made)
    made.stop_requested("stopped", "stop", NOW, signal="SIGTERM")
    assert [message["signal"] for _, message in made.outbox] == ["SIGTERM", "SIGTERM"]
    said(made)
    made.stop_requested("stopped", "Ctrl-C", NOW, signal="SIGINT")
    assert made.outbox == []


def test_the_deadline_of_a_stop_is_handed_down() -> None:
    made = running(2, grace=10)
    made.stop_requested("stopped", "stop", NOW)
    assert [message["within"] for _, message in made.outbox] == [10, 10]
    said(made)
    made.stop_requested("stopped", "stop", NOW + 4)
    assert made.outbox == []
    made.stop_requested("stopped", "stop", NOW + 4, grace=60.0)
    assert [message["within"] for _, message in made.outbox] == [60, 60]
    assert made.next_deadline() == NOW + 69
    said(made)
    made.stop_requested("stopped", "Ctrl-C", NOW, signal="SIGINT", grace=5.0)
    assert made.outbox == []


def test_ranks_that_had_to_be_killed_are_named() -> None:
    made = running(2, grace=10)
    made.stop_requested("stopped", "by ann", NOW)
    made.stopped(0, 0, NOW + 10, killed={"0": 10.004})
    made.stopped(1, 0, NOW + 10, killed={"1": 10.0, "x": 1, "2": None})
    assert made.verdict is not None
    assert made.verdict["reason"] == "by ann; ranks 0, 1 still ran after 10 s and were killed"


def test_ranks_that_are_stopped_because_of_a_failure_are_not_interrupted() -> None:
    made = running(2, grace=10)
    made.failed(1, 0, end(1), NOW)
    said(made)
    made.stop_requested("stopped", "Ctrl-C", NOW, signal="SIGINT")
    assert made.outbox == []


def test_a_rank_that_ended_early_is_named_when_the_time_is_over() -> None:
    made = running(3, timeout=20.0)
    made.ended_well(0, 1, 12.0, NOW)
    made.done(1, 0, NOW + 12)
    made.tick(NOW + 20)
    assert [(worker, message["stacks"]) for worker, message in made.outbox] == [(0, "python"), (2, "python")]
    made.stopped(0, 0, NOW + 21, {"0": "init_process_group (train.py:3)", "x": "nonsense"})
    made.stopped(2, 0, NOW + 21)
    assert made.verdict is not None
    assert (made.verdict["outcome"], made.verdict["reason"]) == (
        "timed-out",
        (
            "the time limit of 20 s has passed; rank 1 had exited 0 after 12 s; "
            "ranks 0, 2 were still running; rank 0 was in init_process_group (train.py:3)"
        ),
    )


def test_a_rank_that_ended_early_is_named_when_another_fails() -> None:
    made = running(3)
    made.ended_well(0, 1, 12.0, NOW)
    made.done(1, 0, NOW + 12)
    made.failed(0, 0, end(0), NOW + 20)
    stop_all(made, 0, 2)
    assert made.verdict is not None
    cause = made.verdict["cause"]
    assert isinstance(cause, dict)
    assert cause["peers"] == "rank 1 had exited 0 after 12 s; rank 2 was still running"


def test_ranks_that_are_well_are_not_asked_for_their_stacks() -> None:
    made = running(2)
    made.failed(0, 0, end(0), NOW)
    assert ["stacks" in message for _, message in made.outbox] == [False, False]
    stop_all(made, 0, 1)
    assert made.verdict is not None
    assert "peers" not in made.verdict["cause"]  # type: ignore[operator]


def test_a_verdict_that_was_given_before_stays() -> None:
    made = gang(3, restarts=5)
    made.joined(0, "a", 0, NOW)
    verdict: dict[str, object] = {"outcome": "succeeded", "exit_code": 0, "reason": None, "cause": None}
    made.adopt(verdict)
    assert (made.phase, made.verdict, made.has_run) == ("over", verdict, True)
    made.adopt({"outcome": "failed"})
    made.stop_requested("stopped", "enough", NOW)
    assert made.verdict is verdict


def test_who_is_lost_while_the_gang_gathers_is_told() -> None:
    made = gang(3)
    made.joined(0, "a", -1, NOW)
    made.joined(1, "b", -1, NOW)
    made.lost(1, "gone", NOW)
    assert events(made) == ["worker-lost"]
    assert made.phase == "gathering"
