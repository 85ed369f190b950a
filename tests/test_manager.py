"""The manager's rounds over a scripted queue: order, what happens when something fails, who is told what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

import pytest

from echelon import manager
from echelon.engines.abilities import QueueSnapshot
from echelon.engines.base import Taken
from echelon.errors import Refused, Unreachable
from echelon.manager import Manager
from echelon.model.cluster import Cluster, Gpu, Node
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.queue import HoldingRun, Place, QueuedRun, Rules
from echelon.model.resources import Resources
from tests.conftest import wait_until


class Scripted:
    """A queue of one node, whose runs end when the test says so."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.waiting: list[QueuedRun] = []
        self.held: dict[str, tuple[str, ...]] = {}
        self.admitted: list[str] = []
        self.told: list[Place] = []
        self.tended = 0
        self.leads = True
        self.fails: dict[str, Exception] = {}
        self.looks: Callable[[], None] = lambda: None

    def add(self, name: str, gpus: int, **more: Any) -> None:
        job = Job(name=name, script="x.py", framework="plain", resources=Resources(gpus=gpus))
        about: Any = {"since": float(len(self.waiting)) + 1e12, "namespace": "ns", "gpus": gpus} | more
        self.waiting.append(QueuedRun(name=f"ns/{name}", job=job, **about))

    def lead(self) -> bool:
        return self.leads

    def look(self) -> QueueSnapshot:
        self.looks()
        taken = {gpu: name for name, gpus in self.held.items() for gpu in gpus}
        gpus = tuple(Gpu(id=f"n/{at}", holder=taken.get(f"n/{at}")) for at in range(self.gpus))
        node = Node(name="n", cpus=9, memory=2.0**34, free_cpus=9, free_memory=2.0**34, gpus=gpus)
        cluster = Cluster(nodes=(node,), here=False)
        holding = [HoldingRun(name=name, gpus=len(gpus)) for name, gpus in self.held.items()]
        return QueueSnapshot(
            waiting=tuple(self.waiting), holding=holding, view=lambda _job: cluster, rules=Rules()
        )

    def admit(self, name: str, plan: Plan) -> None:
        if name in self.fails:
            raise self.fails[name]
        self.held[name] = tuple(gpu for seat in plan.placement.seats for gpu in seat.gpus)
        self.waiting = [each for each in self.waiting if each.name != name]
        self.admitted.append(name)

    def tell(self, place: Place) -> None:
        self.told.append(place)

    def tend(self) -> None:
        self.tended += 1

    def leave(self) -> None:
        self.leads = False


class Served:
    def __init__(self, dispatch: Scripted) -> None:
        self.lines: list[str] = []
        self.beats: list[bool] = []
        self.manager = Manager(dispatch, say=self.lines.append, beat=self.beats.append)
        self.thread = threading.Thread(target=self.manager.serve)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.manager.leave()
        self.thread.join()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK", "_STANDBY", "_LONGEST"):
        monkeypatch.setattr(manager, name, 0.01)


def test_runs_are_admitted_in_the_order_of_the_policy() -> None:
    queue = Scripted(2)
    queue.add("old", 1)
    queue.add("new", 1)
    queue.add("urgent", 2, priority=1)
    with Served(queue):
        wait_until(lambda: queue.admitted == ["ns/urgent"], "the manager")
        queue.held.clear()
        wait_until(lambda: queue.admitted == ["ns/urgent", "ns/old", "ns/new"], "the manager")
    assert not queue.leads, "it gives the Lease up at its end"


def test_a_run_that_cannot_be_started_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Scripted(1)
    queue.add("broken", 1)
    queue.add("next", 1)
    queue.fails["ns/broken"] = Refused("a webhook says no", hint="ask it")
    with Served(queue) as served:
        wait_until(lambda: queue.admitted == ["ns/next"], "the manager")
    assert any("a webhook says no" in line for line in served.lines)


def test_what_another_has_taken_is_looked_at_again() -> None:
    queue = Scripted(1)
    queue.add("first", 1)
    queue.fails["ns/first"] = Taken("theirs/pod")
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            queue.fails.clear()

    queue.looks = look
    with Served(queue):
        wait_until(lambda: queue.admitted == ["ns/first"], "the manager")


def test_only_the_replica_that_leads_decides() -> None:
    queue = Scripted(1)
    queue.leads = False
    queue.add("first", 1)
    with Served(queue) as served:
        wait_until(lambda: len(served.beats) > 5, "the manager")
        assert queue.admitted == []
        queue.leads = True
        wait_until(lambda: queue.admitted == ["ns/first"], "the manager")


def test_an_outage_is_told_once_and_waited_for() -> None:
    queue = Scripted(1)
    queue.add("first", 1)

    def away() -> None:
        raise Unreachable("the API server does not answer", hint="wait")

    queue.looks = away
    with Served(queue) as served:
        wait_until(lambda: served.beats.count(False) > 3, "the manager")
        assert [line for line in served.lines if "API server" in line] == [
            "the API server does not answer; wait"
        ]
        queue.looks = lambda: None
        wait_until(lambda: queue.admitted == ["ns/first"] and served.beats[-1], "the manager")


def test_a_user_is_told_their_place_and_nothing_of_other_namespaces() -> None:
    queue = Scripted(2)
    queue.held["theirs/secret-project"] = ("n/0", "n/1")
    queue.add("gang", 2, since=0.0)
    queue.add("small", 1, since=1.0, namespace="other")
    with Served(queue):
        wait_until(lambda: len(queue.told) == 2, "the manager")
    first, second = queue.told
    assert (first.position, first.reason) == (1, "waiting for 2 GPUs")
    assert (second.position, second.why) == (2, "no-room")
    assert "secret" not in repr(queue.told)


def test_upkeep_is_done() -> None:
    queue = Scripted(1)
    with Served(queue):
        wait_until(lambda: queue.tended > 0, "the manager")
