"""The order of a queue: what was promised to runs that wait, checked against a simple model of a cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from echelon.model.job import Job
from echelon.model.queue import HoldingRun, QueuedRun
from echelon.queueing.policy import Full, Seated, decide, in_order, places

NOW = 10_000.0


@dataclass(frozen=True)
class Pool:
    """GPUs that are all alike, and who holds how many: the simplest Room."""

    size: int
    held: tuple[tuple[str, int], ...] = ()

    @property
    def free(self) -> int:
        return self.size - sum(gpus for _, gpus in self.held)

    def take(self, run: QueuedRun) -> Seated[Pool] | Full:
        if run.gpus > self.size:
            return Full(reason="too large", never=True)
        if run.gpus > self.free:
            return Full(reason=f"{self.free} GPUs are free")
        rest = replace(self, held=(*self.held, (run.name, run.gpus)))
        return Seated(room=rest, gpus=run.gpus)

    def without(self, names: Collection[str]) -> Pool:
        return replace(self, held=tuple(each for each in self.held if each[0] not in names))


def queued(
    name: str, gpus: int, *, waited: float = 0.0, timeout: float | None = None, priority: int = 0, **more: Any
) -> QueuedRun:
    job = Job(name="x", script="x.py", timeout=timeout)
    return QueuedRun(name=name, job=job, since=NOW - waited, gpus=gpus, priority=priority, **more)


def holds(name: str, gpus: int, *, left: float | None = None) -> HoldingRun:
    return HoldingRun(name=name, gpus=gpus, ends=None if left is None else NOW + left)


def pool(size: int, *holding: HoldingRun) -> Pool:
    return Pool(size, tuple((each.name, each.gpus) for each in holding))


def whys(queue: list[QueuedRun], holding: list[HoldingRun], size: int) -> dict[str, str]:
    found = decide(queue, holding, pool(size, *holding), NOW)
    return {each.run.name: each.why for each in found.verdicts}


def test_priority_comes_before_age() -> None:
    queue = [queued("old", 1, waited=50), queued("new", 1, waited=5), queued("urgent", 1, priority=3)]
    assert [each.name for each in in_order(queue)] == ["urgent", "old", "new"]
    assert whys(queue, [], 2) == {"urgent": "starts", "old": "starts", "new": "no-room"}


def test_what_can_never_start_keeps_nobody_waiting() -> None:
    assert whys([queued("huge", 99, waited=9999), queued("small", 1)], [holds("other", 4)], 8) == {
        "huge": "never",
        "small": "starts",
    }


def test_a_run_without_gpus_is_not_held_back() -> None:
    queue = [queued("gang", 8, waited=9999), queued("cpus", 0)]
    assert whys(queue, [holds("other", 4)], 8)["cpus"] == "starts"


def test_position_reason_and_earliest_start() -> None:
    holding = [holds("first", 4, left=100), holds("second", 4, left=300)]
    queue = [
        queued("gang", 8, waited=9999, timeout=50),
        queued("next", 2, waited=20, timeout=10),
        queued("last", 8, waited=10),
        queued("lost", 1, waited=5),
    ]
    found = places(queue, holding, pool(8, *holding), NOW)
    assert [(each.position, each.name, each.earliest) for each in found] == [
        (1, "gang", NOW + 300),
        (2, "next", NOW + 350),
        (3, "last", NOW + 360),
        (4, "lost", None),  # after `last`, which has no time limit
    ]
    assert found[0].reason == "0 GPUs are free"


def test_nobody_overtakes() -> None:
    queue = [queued("gang", 8, waited=9), queued("small", 1, waited=5), queued("cpus", 0), queued("last", 1)]
    found = decide(queue, [holds("other", 4)], pool(8, holds("other", 4)), NOW)
    assert [(each.run.name, each.why, each.reason) for each in found.verdicts] == [
        ("gang", "no-room", "4 GPUs are free"),
        ("small", "reserved", "queued behind gang"),
        ("cpus", "starts", ""),
        ("last", "reserved", "queued behind gang and 1 more"),
    ]


runs = st.lists(
    st.builds(
        queued,
        st.uuids().map(str),
        st.integers(0, 8),
        waited=st.sampled_from([0.0, 10.0, 5000.0]),
        timeout=st.sampled_from([None, 5.0, 50.0]),
        priority=st.integers(-1, 1),
    ),
    max_size=8,
)
occupants = st.lists(
    st.builds(holds, st.uuids().map(str), st.integers(1, 3), left=st.sampled_from([None, 10.0, 100.0])),
    max_size=4,
)


@given(runs, occupants, st.integers(0, 10), st.randoms())
def test_nothing_is_given_twice_and_nothing_is_left_out(
    queue: list[QueuedRun], holding: list[HoldingRun], extra: int, chance: Random
) -> None:
    """In whatever order the queue is listed; deciding again at once starts nothing more."""
    room = pool(sum(each.gpus for each in holding) + extra, *holding)
    first = decide(queue, holding, room, NOW)
    assert sum(each.run.gpus for each in first.verdicts if each.why == "starts") <= room.free
    shuffled = list(queue)
    chance.shuffle(shuffled)
    assert decide(shuffled, holding, room, NOW) == first
    waiting = [each.run for each in first.verdicts if each.why != "starts"]
    again = decide(waiting, first.holding, first.room, NOW)
    assert all(each.why != "starts" for each in again.verdicts)
