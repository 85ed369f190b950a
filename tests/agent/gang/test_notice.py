"""Workers that are told to leave: all ranks get notice, once and at one moment; it counts as no restart, and
no two generations run at once, whoever joins, leaves or dies meanwhile."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.gangs import NOW, end, events, gang, running, said, stop_all
from tests.properties import examples

from echelon.agent import stopping
from echelon.agent.gang.decisions import Gang
from echelon.agent.gang.verdict import LEFT

TOLD = "its agent was told to leave (SIGTERM)"


def orders(made: Gang) -> dict[int | None, dict[str, object]]:
    out, made.outbox = made.outbox, []
    return dict(out)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_all_ranks_get_one_notice_with_one_deadline(victim: int) -> None:
    made = running(3, grace=30)
    made.leaves(victim, TOLD, NOW)
    (event,) = made.events
    assert event == {"kind": "notice", "worker": victim, "reason": TOLD, "grace": 30}
    told = orders(made)
    assert set(told) == {0, 1, 2}
    assert all(order == told[0] for order in told.values())
    assert (told[0]["signal"], told[0]["within"]) == ("SIGTERM", 30)
    assert told[0]["notice"] == {"reason": "leave", "who": f"worker {victim}"}


def test_the_one_that_leaves_is_waited_for_as_the_others_are() -> None:
    made = running(2, restarts=1)
    made.leaves(1, TOLD, NOW)
    stop_all(made, 0)
    assert made.phase == "stopping"
    stop_all(made, 1)
    assert (made.phase, made.generation, made.spared) == ("gathering", 0, 1)
    assert events(made) == ["notice", "worker-lost", "failed"]
    made.lost(1, "the connection was closed", NOW)
    assert events(made) == []
    made.joined(1, "new", -1, NOW)
    assert (made.phase, made.generation) == ("preparing", 1)


def test_without_restarts_the_run_ends_and_has_not_succeeded() -> None:
    made = running(2)
    made.leaves(1, TOLD, NOW)
    for worker in (0, 1):
        made.done(worker, 0, NOW + 1)  # a rank that exits with 0 now has not finished
        made.stopped(worker, 0, NOW + 1)
    assert made.verdict is not None
    cause: Any = made.verdict["cause"]
    assert (made.verdict["outcome"], cause["kind"], cause["worker"]) == ("failed", LEFT, 1)


def test_two_that_are_told_at_once_are_one_notice() -> None:
    made = running(3, restarts=1, grace=30)
    made.leaves(1, TOLD, NOW)
    orders(made)
    made.leaves(2, TOLD, NOW + 0.1)
    assert orders(made) == {}  # nothing again, and the deadline stays
    stop_all(made, 0, 1, 2)
    assert (made.phase, made.spared) == ("gathering", 1)
    made.joined(2, "new", -1, NOW)
    assert made.phase == "gathering"
    made.joined(1, "new", -1, NOW)
    assert (made.phase, made.generation) == ("preparing", 1)


def test_a_rank_that_fails_after_the_notice_is_no_failure() -> None:
    """Its report may be on its way when the order to stop is."""
    made = running(2, restarts=1)
    made.leaves(1, TOLD, NOW)
    made.failed(0, 0, end(0), NOW)
    stop_all(made, 0, 1)
    assert made.spared == 1


def test_a_failure_before_the_notice_counts() -> None:
    made = running(2, restarts=1)
    made.failed(0, 0, end(0), NOW)
    made.leaves(1, TOLD, NOW)
    stop_all(made, 0, 1)
    assert (made.spared, made.phase) == (0, "gathering")


def test_one_that_dies_while_it_leaves_is_waited_for_no_longer() -> None:
    made = running(2, restarts=1)
    made.leaves(1, TOLD, NOW)
    stop_all(made, 0)
    made.lost(1, "it sent nothing for 10 s", NOW)
    assert (made.phase, made.spared) == ("gathering", 1)


def test_one_that_is_replaced_before_its_end_was_seen() -> None:
    made = running(2, restarts=1)
    made.leaves(1, TOLD, NOW)
    made.joined(1, "new", -1, NOW)
    stop_all(made, 0)
    assert (made.phase, made.generation) == ("preparing", 1)


@pytest.mark.parametrize("grace", [None, 60.0])
def test_a_stop_meanwhile_gives_no_more_time_than_the_pod_has(grace: float | None) -> None:
    made = running(2, grace=10)
    made.leaves(1, TOLD, NOW)
    orders(made)
    made.stop_requested("stopped", "enough", NOW + 4, grace=grace)
    assert [order["within"] for order in orders(made).values()] == [6.0, 6.0][: 0 if grace is None else 2]


def test_a_notice_during_a_stop_shortens_it_for_all() -> None:
    made = running(2, grace=10)
    made.stop_requested("stopped", "enough", NOW, grace=60)
    assert [order["within"] for order in orders(made).values()] == [60, 60]
    made.leaves(1, TOLD, NOW + 1)
    assert [order["within"] for order in orders(made).values()] == [10, 10]
    gentle = running(2, grace=10)
    gentle.stop_requested("stopped", "enough", NOW, signal="SIGINT")
    orders(gentle)
    gentle.leaves(1, TOLD, NOW + 1)
    assert [order["signal"] for order in orders(gentle).values()] == ["SIGTERM", "SIGTERM"]
    late = running(2, grace=10)
    late.stop_requested("stopped", "enough", NOW)
    orders(late)
    late.leaves(1, TOLD, NOW + 8)
    assert orders(late) == {}  # those that are about to be killed get no more time


def test_one_whose_loss_does_not_matter_is_told_alone() -> None:
    """A parameter server, while the chief's end has ended the run but for the others' grace."""
    made = running(2, until="first")
    made.ended_well(0, 0, 1.0, NOW)
    made.leaves(1, TOLD, NOW)
    told = orders(made)
    assert set(told) == {1}
    assert told[1]["notice"] == {"reason": "leave", "who": "worker 1"}


def reason_of(made: Gang) -> object:
    (notice, *others) = (order["notice"] for order in orders(made).values() if "notice" in order)
    assert all(other == notice for other in others)
    return notice


def test_every_order_to_stop_says_why() -> None:
    stopped = running(2)
    stopped.stop_requested("stopped", "stopped by ann", NOW)
    assert reason_of(stopped) == {"reason": "stop", "who": "stopped by ann"}
    late = running(2, timeout=5)
    late.tick(NOW + 5)
    assert reason_of(late) == {"reason": "timeout", "who": None}
    failed = running(2)
    failed.failed(1, 0, end(1), NOW)
    assert reason_of(failed) == {"reason": "failure", "who": "rank 1"}
    lost = running(2)
    lost.lost(1, "gone", NOW)
    assert reason_of(lost) == {"reason": "failure", "who": "worker 1"}
    done = running(2, essential={0})
    done.done(0, 0, NOW)
    assert reason_of(done) == {"reason": "done", "who": None}


def test_while_nothing_runs_one_that_is_told_is_a_loss_that_costs_nothing() -> None:
    made = gang(2, restarts=1)
    made.joined(1, "b", -1, NOW)
    made.leaves(1, TOLD, NOW)
    assert (events(made), said(made)) == (["worker-lost"], [])
    preparing = gang(2, restarts=1)
    for worker in (0, 1):
        preparing.joined(worker, "a", -1, NOW)
    preparing.leaves(0, TOLD, NOW)
    assert (preparing.phase, preparing.spared) == ("gathering", 1)


class Ranks:
    """The ranks of one worker."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.signals = 0
        self.then: list[Any] = []  # what follows their end

    def stop(self, then: Any) -> None:
        self.signals = 1  # `Ranks.stop` sends no signal twice
        self.then.append(then)


class Worker:
    """An agent as the leader sees it, on paper."""

    def __init__(self, world: World, number: int, failures: int, told: int) -> None:
        self.world = world
        self.number = number
        self.failures, self.told = failures, told
        self.last_started = failures - 1 if number == 0 else -1
        self.spared = told if number == 0 else 0
        self.generation = -1
        self.ranks: Ranks | None = None
        self.ran = self.leaving = self.gone = self.connected = False
        self.up: deque[tuple[str, tuple[Any, ...]]] = deque()  # to the leader
        self.down: deque[dict[str, Any]] = deque()

    def obey(self, order: dict[str, Any]) -> None:
        say = order["say"]
        if say == "prepare" and not self.leaving:
            self.end_ranks(lambda: self.get_ready(order["generation"]))
        elif say == "start" and not self.leaving and order["generation"] == self.generation:
            self.ranks, self.ran = Ranks(self.generation), True
            self.last_started, self.spared = self.generation, max(self.spared, order["spared"])
        elif say == "spared":
            self.spared = max(self.spared, order["count"])
        elif say == "stop":
            if self.ranks is not None and order["notice"]["reason"] == stopping.LEAVE:
                self.world.noticed.setdefault(self.ranks.generation, set()).add(order["within"])
            self.end_ranks(lambda: self.up.append(("stopped", (self.generation,))))
            if self.leaving and self.number:
                self.go()
        elif say in ("leave", "finish"):
            self.end_ranks(self.end)

    def get_ready(self, generation: int) -> None:
        self.generation = generation
        self.up.append(("ready", (generation, [1])))

    def end_ranks(self, then: Any) -> None:
        if self.ranks is None:
            then()
        else:
            self.ranks.stop(then)

    def ranks_end(self) -> None:
        """They have saved."""
        if self.ranks is not None and self.ranks.signals:
            assert self.ranks.signals == 1
            then, self.ranks = self.ranks.then, None
            for each in then:
                each()

    def tell(self) -> None:
        """SIGTERM."""
        if self.leaving:
            return
        self.leaving = True
        self.told += 1
        if self.number == 0:
            self.world.lead(lambda gang: gang.leaves(0, TOLD, self.world.now))
        elif self.connected:
            self.up.append(("bye", ()))
            if self.ranks is None:
                self.end()
        else:
            self.go()

    def go(self) -> None:
        self.end_ranks(self.end)

    def end(self) -> None:
        """Its process is gone."""
        if not self.gone:
            self.gone, self.ranks = True, None
            if self.number == 0:
                self.world.lose_leader()
            elif self.connected:
                self.up.append(("lost", ()))


class World:
    """Workers, their leader, and messages that take their time."""

    def __init__(self, workers: int, restarts: int) -> None:
        self.size, self.restarts, self.now = workers, restarts, NOW
        self.deaths = 0
        self.noticed: dict[int, set[float]] = {}  # by generation: the deadlines that its ranks were told
        self.over = False
        self.workers = [Worker(self, number, 0, 0) for number in range(workers)]
        self.gang: Gang | None = None
        self.begin_to_lead()

    def begin_to_lead(self) -> None:
        own = self.workers[0]
        self.gang = gang(self.size, restarts=self.restarts, grace=10, join_timeout=1e6)
        own.connected = True
        self.lead(lambda gang: gang.joined(0, "0", own.last_started, self.now, spared=own.spared))

    def lead(self, decide: Any) -> None:
        if self.gang is None:
            return
        decide(self.gang)
        self.over = self.over or self.gang.phase == "over"
        out, self.gang.outbox = self.gang.outbox, []
        self.gang.events.clear()
        for worker, order in out:
            for each in self.workers if worker is None else [self.workers[worker]]:
                if each.connected and not each.gone:
                    each.down.append(order)

    def lose_leader(self) -> None:
        self.gang = None
        for each in self.workers[1:]:
            each.up.clear()
            if each.connected:
                for order in each.down:  # what was sent before arrives
                    if not each.gone:
                        each.obey(order)
                each.down.clear()
                each.up.clear()
                each.connected = False
                if each.gone:
                    continue
                if not each.leaving and each.last_started - each.spared >= self.restarts:
                    self.over = True
                each.end_ranks(lambda: None)
        self.workers[0].down.clear()
        self.workers[0].up.clear()

    def kill(self, number: int) -> None:
        if not self.workers[number].gone:
            self.deaths += 1
            self.workers[number].end()

    def replace(self, number: int) -> None:
        old = self.workers[number]
        if old.gone and not old.up and not self.over:
            self.workers[number] = Worker(self, number, old.failures + 1, old.told)
            if number == 0:
                self.begin_to_lead()

    def connect(self, number: int) -> None:
        worker = self.workers[number]
        if self.gang is None or worker.connected or worker.gone or number == 0:
            return
        worker.connected = True
        worker.up.clear()
        if worker.leaving:
            return
        replaced = self.workers[0].failures > 0
        known = max(worker.last_started, worker.failures - 1 if replaced else -1)
        spared = max(worker.spared, worker.told if replaced else 0)
        elapsed = 1.0 if worker.ran else None
        self.lead(lambda gang: gang.joined(number, str(number), known, self.now, elapsed, spared))

    def receive(self, number: int) -> None:
        """The leader reads a message."""
        worker = self.workers[number]
        if not worker.up or self.gang is None:
            return
        say, details = worker.up.popleft()
        if say == "bye":
            self.lead(lambda gang: gang.leaves(number, TOLD, self.now))
        elif say == "lost":
            worker.connected = False
            self.lead(lambda gang: gang.lost(number, "closed", self.now))
        else:
            self.lead(lambda gang: getattr(gang, say)(number, *details, self.now))

    def step(self, what: str, number: int) -> None:
        self.now += 0.01
        worker = self.workers[number]
        if what == "receive":
            self.receive(number)
        elif what == "obey" and worker.down and not worker.gone:
            worker.obey(worker.down.popleft())
        elif what == "end":
            worker.ranks_end()
        elif what == "answer" and worker.leaving and number and not worker.gone:
            worker.go()  # the leader has not answered in time
        elif what == "tell" and not worker.gone:
            worker.tell()
        elif what == "kill":
            self.kill(number)
        elif what == "replace":
            self.replace(number)
        elif what == "connect":
            self.connect(number)
        own = self.workers[0]
        settled = self.gang is None or self.gang.phase != "stopping"
        if own.leaving and not own.gone and settled:
            own.go()
        self.check()

    def check(self) -> None:
        run = {each.ranks.generation for each in self.workers if each.ranks is not None}
        assert len(run) <= 1, "two generations at once"
        if self.gang is not None and not self.over:
            counted = self.gang.last_started - self.gang.spared
            assert counted <= self.deaths, "a notice was counted"

    def come_to_rest(self) -> None:
        """All that can happen by itself happens."""
        for _ in range(40 * self.size):
            for what in ("obey", "receive", "end", "answer", "replace", "connect"):
                for number in range(self.size):
                    self.step(what, number)

    @property
    def runs(self) -> bool:
        return self.gang is not None and self.gang.phase == "running"


STEPS = ("receive", "obey", "end", "answer", "replace", "connect")


@settings(max_examples=examples(150), deadline=None)
@given(
    size=st.integers(1, 4),
    restarts=st.integers(1, 2),
    seed=st.integers(0, 2**32),
    deadly=st.booleans(),
)
def test_whoever_joins_leaves_or_dies(size: int, restarts: int, seed: int, *, deadly: bool) -> None:
    chance = random.Random(seed)
    world = World(size, restarts)
    if chance.random() < 0.5:
        world.come_to_rest()
    for _ in range(chance.randrange(200)):
        roll = chance.random()
        what = "tell" if roll < 0.06 else "kill" if deadly and roll < 0.08 else chance.choice(STEPS)
        world.step(what, chance.randrange(size))
    assert deadly or not world.over
    world.come_to_rest()
    if not deadly:
        assert world.runs, (world.gang and world.gang.verdict, [vars(each) for each in world.workers])
    for deadlines in world.noticed.values():
        assert len(deadlines) == 1
