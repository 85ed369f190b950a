"""A gang that is not whole gives way: when, for how long at most a start is delayed, and when it does not."""

from __future__ import annotations

import heapq
from random import Random

from tests.agent.gangs import NOW, events, gang, said

from echelon.agent.gang.decisions import Gang
from echelon.agent.gang.giving_way import LONGEST_BACK_OFF, MOST_ROUNDS, time_to_wait, why
from echelon.engines.kubernetes.render.task import GIVE_WAY


def waiting(workers: int = 3, *, patience: float | None = 50.0, joined: int = 2) -> Gang:
    made = Gang(gang(workers, join_timeout=1000, restarts=1)._task, NOW, patience)
    for worker in range(joined):
        made.joined(worker, "a", -1, NOW)
    return made


def test_all_leave_together_when_one_is_missing_for_too_long() -> None:
    made = waiting()
    assert made.next_deadline() == NOW + 50
    made.tick(NOW + 49)
    assert made.phase == "gathering"
    made.tick(NOW + 50)
    assert made.phase == "leaving"
    assert made.verdict is None
    assert said(made) == [(None, "give-way")]
    assert [(each["kind"], "worker 2 was missing" in str(each["reason"])) for each in made.events] == [
        ("gave-way", True)
    ]
    made.lost(1, "it left", NOW + 51)
    made.joined(2, "c", -1, NOW + 51)
    made.tick(NOW + 5000)
    assert said(made) == []
    assert events(made) == ["gave-way"]
    assert made.next_deadline() is None


def test_a_whole_gang_does_not_give_way_however_long_it_prepares() -> None:
    made = waiting(joined=3)
    made.tick(NOW + 60)
    assert made.phase == "preparing"
    made.lost(1, "it was deleted", NOW + 61)  # from now on it counts as a start that failed
    made.tick(NOW + 100)
    assert made.phase != "leaving"


def test_a_gang_that_has_run_does_not_give_way_to_others() -> None:
    """A leader that is replaced learns it from its members."""
    made = waiting(joined=1)
    made.joined(1, "b", 0, NOW, elapsed=20.0)
    made.tick(NOW + 60)
    assert made.phase == "gathering"


def test_a_gang_that_lost_a_worker_after_its_start_does_not_give_way() -> None:
    made = waiting(joined=3)
    for worker in range(3):
        made.ready(worker, 0, [1], NOW)
    made.lost(2, "its node was lost", NOW + 10)
    for worker in range(2):
        made.stopped(worker, 0, NOW + 10)
    made.tick(NOW + 500)
    assert made.phase == "gathering"


def test_a_run_that_waits_for_no_gpus_does_not_give_way() -> None:
    made = waiting(patience=time_to_wait(0.0, 0, 0.5))
    made.tick(NOW + 900)
    assert made.phase == "gathering"


def test_a_leader_that_stood_still_gives_its_workers_that_time_again() -> None:
    made = waiting()
    made.postpone(30.0)
    made.tick(NOW + 60)
    assert made.phase == "gathering"
    made.tick(NOW + 80)
    assert made.phase == "leaving"


def test_a_stop_ends_a_gang_that_gives_way() -> None:
    made = waiting()
    made.tick(NOW + 50)
    made.stop_requested("stopped", "by ann", NOW + 51)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "stopped"


def test_the_ended_pods_of_a_worker_are_limited() -> None:
    assert time_to_wait(GIVE_WAY, MOST_ROUNDS - 1, 0.0) is not None
    assert time_to_wait(GIVE_WAY, MOST_ROUNDS, 0.0) is None
    holding = sum(time_to_wait(GIVE_WAY, rounds, 0.0) or 0.0 for rounds in range(MOST_ROUNDS))
    assert holding > 12 * 3600  # of GPUs, not counted while none of them is free


def test_from_the_second_round_on_a_gang_waits_longer_than_the_longest_back_off() -> None:
    for rounds in range(1, MOST_ROUNDS):
        assert (time_to_wait(GIVE_WAY, rounds, 0.0) or 0.0) >= LONGEST_BACK_OFF


def test_what_is_told() -> None:
    assert why([1], 420.0).endswith("worker 1 was missing for 7 min")
    assert why([1, 2], 20.0).endswith("workers 1, 2 were missing for 20 s")
    assert why(list(range(10)), 20.0).endswith(
        "workers 0, 1, 2, 3, 4, 5, 6, 7 and 2 more were missing for 20 s"
    )


def test_a_gang_whose_gpus_become_free_is_whole_soon() -> None:
    """From any history: each worker gave way some times; its pod starts now, or the Job controller waits. The
    bound is twice the longest back-off: a leader in its first round may leave once more, and take workers
    along whose back-off is the longest by now.
    """
    random = Random(1)
    for _ in range(5000):
        workers = random.choice((2, 3, 8))
        rounds = [random.choice((0, 0, 1, 2, 3, 6, 12)) for _ in range(workers)]
        starts = [(random.uniform(0, _back_off(each)), worker) for worker, each in enumerate(rounds)]
        assert _when_whole(starts, rounds, random) <= 2 * LONGEST_BACK_OFF + 40.0


def _back_off(rounds: int) -> float:
    """What the Job controller waits for after so many pods of one index."""
    return min(LONGEST_BACK_OFF, 10.0 * 2.0 ** (rounds - 1)) if rounds else 0.0


def _when_whole(starts: list[tuple[float, int]], rounds: list[int], random: Random) -> float:
    """Let pods start and leave until all are there. Worker 0 takes those along that are there."""
    heapq.heapify(starts)
    leaves: dict[int, float] = {}  # when each worker that is there leaves, if nothing changes
    while True:
        next_start = starts[0][0] if starts else float("inf")
        alone = 0 not in leaves
        leaving = [(at, worker) for worker, at in leaves.items() if alone or worker == 0]
        now, first = min(leaving, default=(float("inf"), -1))
        if next_start <= now:
            now, worker = heapq.heappop(starts)
            leaves[worker] = now + (time_to_wait(GIVE_WAY, rounds[worker], random.random()) or 0.0)
            if len(leaves) == len(rounds):
                return now
            continue
        for worker in list(leaves) if first == 0 else [first]:
            del leaves[worker]
            rounds[worker] += 1
            heapq.heappush(starts, (now + _back_off(rounds[worker]), worker))
