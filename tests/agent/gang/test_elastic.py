"""A gang whose number of workers changes: it starts with those that are there, ends when one leaves, and
takes in those that come, whoever joins, leaves, dies or is slow.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.gangs import NOW, end, events, gang, said, stop_all
from tests.properties import examples

from echelon.agent.gang.decisions import TOGETHER, Gang
from echelon.agent.gang.verdict import LEFT, LOST

TOLD = "its agent was told to leave (SIGTERM)"
SETTLE = 120.0


def elastic(most: int = 3, least: int = 1, **rules: Any) -> Gang:
    return gang(most, least=least, settle=SETTLE, **rules)


def join(made: Gang, *workers: int, now: float = NOW) -> None:
    for worker in workers:
        made.joined(worker, f"10.0.0.{worker}", -1, now)


def get_ready(made: Gang, *workers: int, now: float = NOW) -> None:
    for worker in workers:
        made.ready(worker, made.generation, [20000 + worker], now)


def running(*workers: int, most: int = 3, least: int = 1, **rules: Any) -> Gang:
    """One that runs with these workers."""
    made = elastic(most, least, **rules)
    join(made, *workers)
    if len(workers) < most:
        made.tick(NOW + TOGETHER)
    get_ready(made, *workers)
    assert made.phase == "running"
    said(made)
    events(made)
    return made


def members(made: Gang) -> list[int]:
    """Those that are told to get ready."""
    (order,) = (message for _, message in made.outbox if message["say"] == "prepare")
    found = order["members"]
    assert isinstance(found, list)
    return found


def test_all_start_at_once() -> None:
    made = elastic(3)
    join(made, 2, 0, 1)
    assert (made.phase, members(made)) == ("preparing", [0, 1, 2])
    assert made.events == [{"kind": "resized", "restart": 0, "workers": [0, 1, 2]}]


def test_enough_start_a_short_while_after_they_have_come() -> None:
    made = elastic(4, 2)
    join(made, 0)
    assert made.next_deadline() == NOW + 60.0  # as any run waits for its workers
    join(made, 3, now=NOW + 5)
    assert (made.phase, made.next_deadline()) == ("gathering", NOW + 5 + TOGETHER)
    join(made, 2, now=NOW + 6)
    made.tick(NOW + 5 + TOGETHER)
    assert members(made) == [0, 2, 3]


def test_one_that_leaves_before_the_start_is_waited_for_again() -> None:
    made = elastic(4, 2)
    join(made, 0, 3)
    made.lost(3, "gone", NOW + 1)
    made.tick(NOW + TOGETHER)
    assert (made.phase, made.next_deadline()) == ("gathering", NOW + 60.0)
    made.tick(NOW + 60.0)
    assert made.verdict is not None
    assert made.verdict["cause"]["summary"] == "workers 1, 2, 3 never arrived within 60 s"  # type: ignore[index]


def test_members_are_numbered_in_the_order_of_their_seats() -> None:
    made = elastic(4, 2, wiring={"MASTER": "{endpoint:0}", "SIZE": "{ranks}", "LOCAL": "{rank_here:4}"})
    join(made, 3, 1)
    made.tick(NOW + TOGETHER)
    said(made)
    get_ready(made, 1, 3)
    (first, told), (second, _) = made.outbox
    assert (first, second) == (1, 3)
    assert told["addresses"] == {"0": "10.0.0.1"}
    assert told["ports"] == {"0": [20001]}


def test_without_one_that_is_told_to_leave_the_others_start_again_at_once() -> None:
    made = running(0, 1, 2)
    made.leaves(1, TOLD, NOW + 10)
    assert events(made) == ["notice"]
    assert said(made) == [(0, "stop"), (1, "stop"), (2, "stop")]
    stop_all(made, 0, 1, 2)
    assert (made.phase, made.generation, made.spared) == ("preparing", 1, 1)
    assert members(made) == [0, 2]
    told = [(event["kind"], event.get("reason")) for event in made.events]
    assert told == [("worker-lost", TOLD), ("restarting", None), ("resized", "worker 1 has left")]


def test_a_lost_worker_costs_no_restart() -> None:
    made = running(0, 1, 2)
    made.lost(2, "gone", NOW)
    made.failed(0, 0, end(0), NOW)  # however it takes the loss of its peer
    stop_all(made, 0, 1)
    assert (made.phase, made.generation, made.spared, members(made)) == ("preparing", 1, 1, [0, 1])
    assert "failed" not in events(made)


def test_a_rank_that_fails_counts() -> None:
    made = running(0, 1, 2)
    made.failed(2, 0, end(2, 3), NOW)
    stop_all(made, 0, 1, 2)
    assert made.verdict is not None
    assert (made.verdict["outcome"], made.verdict["exit_code"]) == ("failed", 3)
    again = running(0, 1, restarts=1)
    again.failed(1, 0, end(1, 3), NOW)
    stop_all(again, 0, 1)
    assert (again.phase, again.spared) == ("preparing", 0)


def test_those_that_join_are_taken_in_after_a_while() -> None:
    made = running(0)
    start = NOW + TOGETHER
    get_ready(made, 0, now=start)
    join(made, 2, now=NOW + 10)
    assert said(made) == []
    assert made.next_deadline() == NOW + SETTLE
    join(made, 1, now=NOW + 20)
    made.tick(NOW + SETTLE)
    assert said(made) == [(0, "stop")]
    assert made.events == [{"kind": "resizing", "reason": "workers 1, 2 have joined", "grace": 10.0}]
    stop_all(made, 0)
    assert (members(made), made.spared) == ([0, 1, 2], 1)
    assert made.events[-1]["reason"] == "workers 1, 2 have joined"


def test_one_that_joins_late_is_taken_in_at_once() -> None:
    made = running(0)
    join(made, 1, now=NOW + 500)
    made.tick(NOW + 500)
    assert said(made) == [(0, "stop")]


def test_ranks_that_end_by_a_growth_have_not_failed() -> None:
    made = running(0, 1)
    join(made, 2, now=NOW + SETTLE)
    made.tick(NOW + SETTLE)
    made.failed(1, 0, end(1), NOW + SETTLE)
    stop_all(made, 0, 1)
    assert (made.phase, made.spared) == ("preparing", 1)


def test_a_rank_that_has_ended_well_is_not_started_again_for_more_workers() -> None:
    made = running(0, 1)
    made.ended_well(0, 1, 3.0, NOW + 1)
    join(made, 2, now=NOW + SETTLE)
    made.tick(NOW + SETTLE)
    assert said(made) == []
    for worker in (0, 1):
        made.done(worker, 0, NOW + SETTLE)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "succeeded"


def test_a_newcomer_that_leaves_again_changes_nothing() -> None:
    made = running(0, 1)
    join(made, 2, now=NOW + 1)
    made.leaves(2, TOLD, NOW + 2)
    made.tick(NOW + SETTLE)
    assert (said(made), made.phase) == ([], "running")


def test_below_the_minimum_it_waits_and_says_so() -> None:
    made = running(0, 1, most=4, least=2)
    made.lost(1, "gone", NOW)
    stop_all(made, 0)
    assert (made.phase, made.next_deadline()) == ("gathering", None)
    assert made.events[-1] == {
        "kind": "waiting",
        "reason": "it waits for workers: 1 is there, and it needs 2",
    }
    join(made, 3, now=NOW + 9000)
    made.tick(NOW + 9000 + TOGETHER)
    assert members(made) == [0, 3]


def test_while_it_waits_it_can_be_stopped() -> None:
    made = running(0, 1, most=4, least=2)
    made.leaves(0, TOLD, NOW)
    stop_all(made, 0, 1)
    made.stop_requested("stopped", "enough", NOW + 5)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "stopped"


def test_it_starts_without_one_that_does_not_get_ready() -> None:
    made = elastic(3)
    join(made, 0, 1, 2)
    get_ready(made, 0, 2)
    said(made)
    made.tick(NOW + 60)
    assert said(made)[0] == (1, "leave")
    assert (made.phase, made.generation) == ("preparing", 1)
    get_ready(made, 0, 2)
    assert made.phase == "running"


def test_a_leader_that_comes_back_does_not_count_changes_of_size() -> None:
    made = elastic(3, restarts=1)
    made.joined(0, "a", 6, NOW, spared=6)
    made.joined(1, "b", 6, NOW, 50.0, spared=6)
    made.tick(NOW + TOGETHER)
    assert (made.phase, made.generation) == ("preparing", 7)


class Seats:
    """Workers on paper, which do as they are told after a while, and ranks that run."""

    def __init__(self, most: int, least: int, chance: random.Random) -> None:
        self.gang = elastic(most, least, join_timeout=30.0)
        self.chance = chance
        self.most, self.least = most, least
        self.now = NOW
        self.there: set[int] = set()
        self.leaving: set[int] = set()
        self.ranks: dict[int, int] = {}  # seats whose ranks run, and their numbers
        self.generation = -1
        self.orders: list[tuple[int, dict[str, Any]]] = []
        self.starts = 0  # generations that ran
        self.changes = 0  # joins, leaves and deaths
        self.members: dict[int, list[int]] = {}  # of each generation
        self.act()

    def act(self) -> None:
        out, self.gang.outbox = self.gang.outbox, []
        self.gang.events.clear()
        for worker, order in out:
            if order["say"] == "prepare":
                self.members[order["generation"]] = order["members"]  # type: ignore[index,assignment]
            for each in sorted(self.there) if worker is None else [worker]:
                self.orders.append((each, order))
        assert self.gang.verdict is None

    def step(self) -> None:
        seat = self.chance.randrange(self.most)
        what = self.chance.random()
        if what < 0.10:
            self.join(seat)
        elif what < 0.13:
            self.leave(seat)
        elif what < 0.16:
            self.die(seat)
        elif what < 0.9:
            self.obey()
        else:
            self.now += self.chance.choice((0.1, 1.0, 20.0, 60.0))
            self.gang.tick(self.now)
        self.act()

    def join(self, seat: int) -> None:
        if seat not in self.there and seat not in self.leaving:
            self.there.add(seat)
            self.changes += 1
            self.gang.joined(seat, str(seat), self.generation, self.now)

    def leave(self, seat: int) -> None:
        if seat in self.there and seat not in self.leaving:
            self.changes += 1
            self.gang.leaves(seat, TOLD, self.now)
            self.leaving.add(seat)
            if seat not in self.ranks:
                self.end(seat)

    def die(self, seat: int) -> None:
        if seat in self.there:
            self.changes += 1
            self.end(seat)
            self.gang.lost(seat, "gone", self.now)

    def end(self, seat: int) -> None:
        self.there.discard(seat)
        self.leaving.discard(seat)
        self.ranks.pop(seat, None)
        self.orders = [(each, order) for each, order in self.orders if each != seat]

    def obey(self, at: int | None = None) -> None:
        """One of them carries out its next order: each gets its own in their order, and no other's."""
        if not self.orders:
            return
        seat = self.orders[self.chance.randrange(len(self.orders)) if at is None else at][0]
        at = next(at for at, (each, _) in enumerate(self.orders) if each == seat)
        _, order = self.orders.pop(at)
        if order["say"] == "prepare" and seat not in self.leaving:
            self.gang.ready(seat, order["generation"], [1], self.now)
        elif order["say"] == "start" and seat not in self.leaving:
            self.start(seat, order["generation"])
        elif order["say"] == "stop":
            self.ranks.pop(seat, None)
            self.gang.stopped(seat, order["generation"], self.now)
            if seat in self.leaving:
                self.end(seat)
                self.gang.lost(seat, "the connection was closed", self.now)
        elif order["say"] == "leave":
            self.end(seat)
            self.gang.lost(seat, "the connection was closed", self.now)

    def start(self, seat: int, generation: int) -> None:
        if seat not in self.members[generation]:
            return  # it has joined since
        assert not self.ranks or self.generation == generation, "two generations at once"
        if generation != self.generation:
            self.starts += 1
        self.generation = generation
        number = self.members[generation].index(seat)
        assert number not in self.ranks.values(), "a rank's number twice"
        assert len(self.members[generation]) >= self.least, "below the minimum"
        self.ranks[seat] = number

    def come_to_rest(self) -> None:
        """All is done that was ordered, and nothing else happens."""
        for _ in range(2000):
            if self.orders:
                self.obey(0)
            elif (deadline := self.gang.next_deadline()) is not None:
                self.now = max(self.now, deadline)
                self.gang.tick(self.now)
            else:
                return
            self.act()
        raise AssertionError("it does not come to rest")


@settings(max_examples=examples(300), deadline=None)
@given(most=st.integers(2, 5), least=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_whoever_joins_leaves_dies_or_is_slow(most: int, least: int, seed: int) -> None:
    chance = random.Random(seed)
    least = min(least, most - 1)
    world = Seats(most, least, chance)
    for seat in range(least):
        world.join(seat)
    world.come_to_rest()
    for _ in range(chance.randrange(200)):
        world.step()
    assert world.starts <= world.changes
    began = world.now
    world.come_to_rest()
    assert world.starts <= world.changes
    if len(world.there) < least:
        assert (world.gang.phase, world.ranks) == ("gathering", {})
    else:
        assert sorted(world.ranks) == sorted(world.there)
        assert world.now <= began + SETTLE + TOGETHER + 60.0


def test_kinds_of_causes_that_count() -> None:
    from echelon.agent.gang.generation import is_spared

    task = elastic()._task
    assert [is_spared({"kind": kind}, 10_000, task) for kind in (LEFT, LOST, "resized", "rank")] == [
        True,
        True,
        True,
        False,
    ]
