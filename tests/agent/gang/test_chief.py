"""A run whose first rank is a chief: it ends when the chief does."""

from __future__ import annotations

from tests.agent.gangs import NOW, end, running, said, stop_all

from echelon.agent.gang.decisions import Gang

GRACE = 10.0
RESET = "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down."


def chiefly(workers: int = 3, **rules: object) -> Gang:
    return running(workers, until="first", grace=GRACE, **rules)


def outcome(made: Gang) -> object:
    return made.verdict and made.verdict["outcome"]


def test_all_end_by_themselves() -> None:
    made = chiefly(2)
    made.ended_well(0, 0, 5.0, NOW)
    made.done(0, 0, NOW)
    assert said(made) == []
    made.done(1, 0, NOW + 1)
    assert outcome(made) == "succeeded"


def test_the_others_are_stopped_when_they_have_had_their_time() -> None:
    made = chiefly()
    made.ended_well(0, 0, 5.0, NOW)
    made.done(0, 0, NOW)
    made.done(2, 0, NOW + 1)
    assert made.next_deadline() == NOW + GRACE
    made.tick(NOW + GRACE)
    assert said(made) == [(1, "stop")]
    made.failed(1, 0, end(1), NOW + GRACE)  # on its way out
    stop_all(made, 1)
    assert outcome(made) == "succeeded"


def test_ranks_of_the_chiefs_own_worker_are_stopped_too() -> None:
    made = chiefly(2)
    made.ended_well(0, 0, 5.0, NOW)  # another rank of worker 0 goes on
    made.tick(NOW + GRACE)
    assert said(made) == [(0, "stop"), (1, "stop")]


def test_the_end_of_another_rank_ends_nothing() -> None:
    made = chiefly(2)
    made.ended_well(0, 1, 5.0, NOW)
    made.done(1, 0, NOW)
    assert made.next_deadline() is None
    made.ended_well(0, 0, 500.0, NOW + 500)
    made.done(0, 0, NOW + 500)
    assert outcome(made) == "succeeded"


def test_ranks_that_fail_because_the_chief_has_ended_decide_nothing() -> None:
    made = chiefly(3)
    made.failed(1, 0, end(1, 1, RESET), NOW)  # heard before the chief's own end
    made.ended_well(0, 0, 5.0, NOW + 0.5)
    made.done(0, 0, NOW + 0.5)
    made.failed(2, 0, end(2, 1, RESET), NOW + 1)
    made.tick(NOW + 0.5 + GRACE)
    stop_all(made, 1, 2)
    assert outcome(made) == "succeeded"


def test_a_rank_that_fails_by_itself_fails_the_run_even_then() -> None:
    made = chiefly(2)
    made.ended_well(0, 0, 5.0, NOW)
    made.done(0, 0, NOW)
    made.failed(1, 0, end(1, 3), NOW + 1)
    stop_all(made, 1)
    assert outcome(made) == "failed"
    assert made.verdict is not None
    assert made.verdict["cause"]["rank"] == 1  # type: ignore[index]


def test_a_worker_that_is_lost_after_the_chief_has_ended_is_not_missed() -> None:
    made = chiefly(2)
    made.ended_well(0, 0, 5.0, NOW)
    made.done(0, 0, NOW)
    made.lost(1, "its connection broke", NOW + 1)
    made.tick(NOW + GRACE)
    assert outcome(made) == "succeeded"


def test_a_chief_that_fails_fails_the_run() -> None:
    made = chiefly(2, restarts=1)
    made.failed(0, 0, end(0), NOW)
    stop_all(made, 0, 1)
    assert made.phase == "preparing"
    assert made.generation == 1


def test_without_a_chief_the_first_ranks_end_is_one_of_many() -> None:
    made = running(2)
    made.ended_well(0, 0, 5.0, NOW)
    made.done(0, 0, NOW)
    assert made.next_deadline() is None
