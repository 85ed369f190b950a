"""The order of a queue: what was promised to runs that wait, checked against a simple model of a cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from echelon.model.job import Job
from echelon.model.queue import HoldingRun, Limits, QueuedRun, Rules
from echelon.queueing.policy import decide, in_order, places
from echelon.queueing.rooms import Full, Seated

NOW = 10_000.0
PLAIN = Rules()


@dataclass(frozen=True)
class Pool:
    """GPUs that are all alike, and who holds how many: the simplest Room."""

    size: int
    held: tuple[tuple[str, int], ...] = ()

    @property
    def free(self) -> int:
        return self.size - sum(gpus for _, gpus in self.held)

    def take(self, run: QueuedRun, most: int | None, *, whole: bool = False) -> Seated[Pool] | Full:
        del whole  # there is one node
        if run.gpus > self.size:
            return Full(reason="too large", never=True)
        if run.gpus > self.free or (most is not None and run.gpus > most):
            return Full(reason=f"{self.free} GPUs are free")
        return Seated(room=self._with(run), gpus=run.gpus)

    def give(self, run: QueuedRun, seated: Seated[Pool]) -> Pool:
        assert seated.gpus == run.gpus
        return self._with(run)

    def _with(self, run: QueuedRun) -> Pool:
        return replace(self, held=(*self.held, (run.name, run.gpus)))

    def fits(self, run: QueuedRun) -> bool:
        return run.gpus <= self.free

    def without(self, names: Collection[str]) -> Pool:
        return replace(self, held=tuple(each for each in self.held if each[0] not in names))

    def kind(self, run: QueuedRun) -> int:
        return run.gpus

    def competes(self, one: QueuedRun, other: QueuedRun) -> bool:
        return bool(one.gpus and other.gpus)


def queued(
    name: str, gpus: int, *, waited: float = 0.0, timeout: float | None = None, priority: int = 0, **more: Any
) -> QueuedRun:
    job = Job(name="x", script="x.py", timeout=timeout)
    return QueuedRun(name=name, job=job, since=NOW - waited, gpus=gpus, priority=priority, **more)


def holds(name: str, gpus: int, *, left: float | None = None, **more: str) -> HoldingRun:
    return HoldingRun(name=name, gpus=gpus, ends=None if left is None else NOW + left, **more)


def pool(size: int, *holding: HoldingRun) -> Pool:
    return Pool(size, tuple((each.name, each.gpus) for each in holding))


def whys(
    queue: list[QueuedRun], holding: list[HoldingRun], size: int, rules: Rules = PLAIN
) -> dict[str, str]:
    found = decide(queue, holding, pool(size, *holding), rules, NOW)
    return {each.run.name: each.why for each in found.verdicts}


def test_priority_comes_before_age() -> None:
    queue = [queued("old", 1, waited=50), queued("new", 1, waited=5), queued("urgent", 1, priority=3)]
    assert [each.name for each in in_order(queue)] == ["urgent", "old", "new"]
    assert whys(queue, [], 2) == {"urgent": "starts", "old": "starts", "new": "no-room"}


def test_what_does_not_fit_is_overtaken_only_while_it_is_young() -> None:
    holding = [holds("other", 4)]
    assert whys([queued("gang", 8, waited=599), queued("small", 1)], holding, 8) == {
        "gang": "no-room",
        "small": "starts",
    }
    assert whys([queued("gang", 8, waited=600), queued("small", 1)], holding, 8) == {
        "gang": "no-room",
        "small": "reserved",
    }


def test_a_small_run_fills_in_if_it_ends_before_the_head_could_start() -> None:
    holding = [holds("other", 4, left=100)]
    gang = queued("gang", 8, waited=9999)
    assert whys([gang, queued("short", 1, timeout=100)], holding, 8)["short"] == "starts"
    assert whys([gang, queued("long", 1, timeout=101)], holding, 8)["long"] == "reserved"
    assert whys([gang, queued("endless", 1)], holding, 8)["endless"] == "reserved"


def test_what_the_head_leaves_over_is_free_for_all() -> None:
    holding = [holds("other", 6, left=100)]
    gang = queued("gang", 6, waited=9999)
    found = whys([gang, queued("fits", 2), queued("more", 1)], holding, 8)
    assert found == {"gang": "no-room", "fits": "starts", "more": "no-room"}


def test_a_limit_keeps_only_its_own_runs_waiting() -> None:
    rules = Rules(limits=Limits(user=4, users={"bob": 1}))
    holding = [holds("other", 3, user="ann")]
    queue = [
        queued("anns", 2, waited=9999, user="ann"),
        queued("anns-small", 1, waited=9, user="ann"),
        queued("bobs", 1, user="bob"),
        queued("bobs-large", 2, user="bob"),
    ]
    assert whys(queue, holding, 100, rules) == {
        "anns": "user-limit",
        "anns-small": "user-limit",  # else small runs of hers would keep her large one out for ever
        "bobs": "starts",
        "bobs-large": "never",
    }


def test_the_limit_of_a_namespace() -> None:
    rules = Rules(limits=Limits(namespaces={"team": 4}))
    found = decide(
        [queued("one", 3, namespace="team"), queued("two", 2, namespace="team"), queued("three", 2)],
        [],
        Pool(100),
        rules,
        NOW,
    )
    assert [each.why for each in found.verdicts] == ["starts", "starts", "namespace-limit"]
    assert found.verdicts[2].reason == "namespace team may hold 4 GPUs at a time, and holds 3"


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
    found = places(queue, holding, pool(8, *holding), Rules(), NOW)
    assert [(each.position, each.name, each.earliest) for each in found] == [
        (1, "gang", NOW + 300),
        (2, "next", NOW + 100),  # it ends before the gang could start
        (3, "last", NOW + 350),
        (4, "lost", None),  # after `last`, which has no time limit
    ]
    assert found[0].reason == "0 GPUs are free"


runs = st.lists(
    st.builds(
        queued,
        st.uuids().map(str),
        st.integers(0, 8),
        waited=st.sampled_from([0.0, 10.0, 599.0, 600.0, 5000.0]),
        timeout=st.sampled_from([None, 5.0, 50.0, 500.0]),
        priority=st.integers(-1, 1),
        user=st.sampled_from(["ann", "bob"]),
        namespace=st.sampled_from(["red", "blue"]),
    ),
    max_size=8,
)
occupants = st.lists(
    st.builds(
        holds,
        st.uuids().map(str),
        st.integers(1, 3),
        left=st.sampled_from([None, 10.0, 100.0]),
        user=st.sampled_from(["ann", "bob"]),
        namespace=st.sampled_from(["red", "blue"]),
    ),
    max_size=4,
)
rules = st.builds(
    Rules,
    limits=st.builds(
        Limits,
        user=st.sampled_from([None, 4, 8]),
        namespace=st.sampled_from([None, 3, 9]),
        users=st.sampled_from([{}, {"ann": 2}]),
    ),
)


def _room(holding: list[HoldingRun], extra: int) -> Pool:
    return pool(sum(each.gpus for each in holding) + extra, *holding)


@given(runs, occupants, st.integers(0, 10), rules)
def test_limits_hold_and_nothing_is_given_twice(
    queue: list[QueuedRun], holding: list[HoldingRun], extra: int, rule: Rules
) -> None:
    room = _room(holding, extra)
    found = decide(queue, holding, room, rule, NOW)
    started = [each.run for each in found.verdicts if each.why == "starts"]
    assert sum(run.gpus for run in started) <= room.free
    for key, most_of, default in (
        ("user", rule.limits.users, rule.limits.user),
        ("namespace", rule.limits.namespaces, rule.limits.namespace),
    ):
        for whose in {getattr(run, key) for run in started if run.gpus}:
            most = most_of.get(whose, default)
            held = sum(each.gpus for each in found.holding if getattr(each, key) == whose)
            assert most is None or held <= most


@given(runs, occupants, st.integers(0, 10), rules, st.randoms())
def test_the_same_queue_is_decided_the_same_in_any_order_it_is_listed_in(
    queue: list[QueuedRun], holding: list[HoldingRun], extra: int, rule: Rules, chance: object
) -> None:
    shuffled = list(queue)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    room = _room(holding, extra)
    assert decide(queue, holding, room, rule, NOW) == decide(shuffled, holding, room, rule, NOW)


@given(runs, occupants, st.integers(0, 10), rules)
def test_what_could_start_is_started(
    queue: list[QueuedRun], holding: list[HoldingRun], extra: int, rule: Rules
) -> None:
    """Deciding again at once starts nothing more: the first decision left nothing out."""
    room = _room(holding, extra)
    first = decide(queue, holding, room, rule, NOW)
    waiting = [each.run for each in first.verdicts if each.why != "starts"]
    again = decide(waiting, first.holding, first.room, rule, NOW)
    assert all(each.why != "starts" for each in again.verdicts)


def _start_alone(run: QueuedRun, holding: list[HoldingRun], size: int) -> float:
    """The oracle: when the run would start if nobody else came, counted second by second over the ends."""
    for moment in [NOW, *sorted(each.ends for each in holding if each.ends is not None)]:
        used = sum(each.gpus for each in holding if each.ends is None or each.ends > moment)
        if size - used >= run.gpus:
            return moment
    return float("inf")


@given(runs, occupants, st.integers(0, 10))
def test_nobody_delays_a_run_that_has_waited_for_the_bound(
    queue: list[QueuedRun], holding: list[HoldingRun], extra: int
) -> None:
    """For every run that waits beyond the bound: the runs behind it that start now leave its start where it
    was, or, where that is not known, do not start at all.
    """
    rule = Rules()
    room = _room(holding, extra)
    found = decide(queue, holding, room, rule, NOW)
    order = in_order(queue)
    whys_ = {each.run.name: each.why for each in found.verdicts}
    for at, head in enumerate(order):
        if not head.gpus or NOW - head.since < rule.overtake or whys_[head.name] in ("starts", "never"):
            continue
        ahead = {run.name for run in order[:at]}
        held = [each for each in found.holding if each in holding or each.name in ahead]
        before = _start_alone(head, held, room.size)
        after = _start_alone(head, list(found.holding), room.size)
        behind = [run for run in order[at:] if whys_[run.name] == "starts" and run.gpus]
        assert after <= before
        assert before != float("inf") or not behind


def test_in_a_strict_queue_nobody_overtakes() -> None:
    queue = [queued("gang", 8, waited=9), queued("small", 1, waited=5), queued("cpus", 0), queued("last", 1)]
    found = decide(queue, [holds("other", 4)], pool(8, holds("other", 4)), Rules(strict=True), NOW)
    assert [(each.run.name, each.why, each.reason) for each in found.verdicts] == [
        ("gang", "no-room", "4 GPUs are free"),
        ("small", "reserved", "queued behind gang"),
        ("cpus", "starts", ""),
        ("last", "reserved", "queued behind gang and 1 more"),
    ]
