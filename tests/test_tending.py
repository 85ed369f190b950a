"""A run is looked after by the process that holds its claim; a reader without it changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from echelon import tending
from echelon.engines.base import Saving, TakeOver, Tender
from echelon.engines.memory.engine import MemoryEngine
from echelon.errors import EchelonError, Refused, ResultsIncomplete, Unreachable
from echelon.handle import Run
from echelon.model.copy import LeftOut
from echelon.model.ends import succeeded
from echelon.model.engine.cluster import Cluster
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.model.plan import Plan
from echelon.model.run import Record, RunRef
from tests.conftest import wait_until

REF = RunRef(engine="memory", name="fm")
JOB = Job(name="fm", command=("true",), framework="plain")


class Claimed:
    """A tender of a run that is queued until it was started."""

    def __init__(self, engine: Queue) -> None:
        self._engine = engine
        self.kept: list[Event] = []
        self.queued = False
        self.held = True

    def tend(self) -> float:
        self.queued = self._engine.story[-1].kind == "queued"
        self._engine.done.append("tend")
        return 0.01

    def keep(self, end: Event) -> None:
        if self._engine.outages:
            raise self._engine.outages.pop()
        self.kept.append(end)
        self._engine.done.append("kept")

    def release(self) -> None:
        self._engine.done.append("release")


class Queue(MemoryEngine):
    """A queued run at a place where its tender has to admit it; `starts` are what starting it comes to."""

    traits = replace(MemoryEngine.traits, keeps_queue=False)

    def __init__(self, *starts: EchelonError | None, free: bool = True) -> None:
        super().__init__()
        self.starts = list(starts)
        self.free = free
        self.incomplete = False
        self.done: list[str] = []
        self.outages: list[EchelonError] = []
        self.story = [Event(kind="recorded", at=1.0), Event(kind="queued", at=2.0, reason="no room")]
        self.claimed = Claimed(self)

    def cluster(self, *, gpus: bool = True, job: Job | None = None) -> Cluster:
        del gpus, job
        return Cluster(nodes=(), known=False)

    def read(self, ref: RunRef) -> Record:
        return Record(ref=ref, job=JOB, created=1.0, owner="ann", results="runs/fm")

    def tender(  # type: ignore[override]
        self, ref: RunRef, *, take_over: TakeOver | None = None
    ) -> Tender | None:
        del ref
        return self.claimed if self.free or take_over else None

    def queue(self, ref: RunRef, reason: str) -> None:
        del ref
        if self.story[-1].reason != reason:
            self.story.append(Event(kind="queued", at=2.0, reason=reason))

    def start(self, ref: RunRef, plan: Plan) -> None:
        del ref, plan
        trouble = self.starts.pop(0)
        if trouble is not None:
            raise trouble
        self.story += [Event(kind="admitted", at=3.0), succeeded(at=4.0)]

    def collect(self, ref: RunRef, progress: Callable[[int, int], object] | None = None) -> Sequence[LeftOut]:
        del ref, progress
        self.done.append("collect")
        if self.incomplete:
            raise ResultsIncomplete("worker 1: 3 files not fetched: its pod is gone")
        return ()

    def events(self, ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        del ref
        if follow and timeout is None:
            wait_until(lambda: self.story[-1].kind == "finished", "the end")
        yield from self.story


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tending, "_ADMISSION", (0.01, 0.02))
    monkeypatch.setattr(tending, "_CLAIM_LOOK", 0.01)
    monkeypatch.setattr(tending, "_FIRST_LOOK", 0.0)


def reasons(engine: Queue) -> list[str | None]:
    return [event.reason for event in engine.story if event.kind == "queued"]


def test_the_holder_of_the_claim_admits_it_keeps_its_end_and_fetches_its_results() -> None:
    engine = Queue(None)
    assert Run(REF, engine).wait().state == "succeeded"
    assert engine.claimed.kept == [succeeded(at=4.0)]
    assert engine.done.index("kept") < engine.done.index("collect"), "fetching releases the workers"
    assert engine.done[-1] == "release"


@pytest.mark.parametrize("error", [Unreachable("no answer"), Refused("the quota is used up")])
def test_what_keeps_it_out_is_in_its_record_and_it_is_tried_again(error: EchelonError) -> None:
    engine = Queue(error, error, None)
    assert Run(REF, engine).wait().state == "succeeded"
    assert reasons(engine) == ["no room", str(error)]
    assert engine.starts == []


def test_who_does_not_hold_the_claim_changes_nothing() -> None:
    engine = Queue(None, free=False)
    ending = threading.Timer(0.1, lambda: engine.story.append(succeeded(at=4.0)))
    ending.start()
    assert Run(REF, engine).wait().state == "succeeded"
    # Whether results belong to this machine is the engine's to know: it is asked, and nothing else is done.
    assert (engine.done, engine.starts) == (["collect"], [None])


def test_results_that_are_not_all_here_are_an_error_after_the_end() -> None:
    engine = Queue(None)
    engine.incomplete = True
    with pytest.raises(ResultsIncomplete):
        Run(REF, engine).wait()
    assert engine.claimed.kept == [succeeded(at=4.0)]
    troubles: list[str] = []
    assert Run(REF, engine).wait(collect=lambda: troubles.append("asked")).state == "succeeded"
    assert troubles == ["asked"]


def test_the_claim_is_taken_over_when_that_is_asked_for() -> None:
    engine = Queue(None, free=False)
    assert Run(REF, engine).wait(take_over=True).state == "succeeded"
    assert "collect" in engine.done


def test_a_claim_that_becomes_free_is_taken() -> None:
    engine = Queue(None, free=False)
    freeing = threading.Timer(0.1, lambda: setattr(engine, "free", True))
    freeing.start()
    assert Run(REF, engine).wait().state == "succeeded"
    assert engine.starts == []


def test_an_outage_at_the_end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    engine = Queue()
    engine.story.append(replace(succeeded(at=4.0)))
    engine.outages = [Unreachable("away"), Unreachable("still away")]
    with Run(REF, engine).tending() as tender:
        tender.keep(succeeded(at=4.0))
    assert engine.claimed.kept == [succeeded(at=4.0)]


def test_a_claim_that_was_taken_over_is_let_go_of() -> None:
    engine = Queue(None, free=False)
    engine.claimed.held = False
    engine.free = True
    with Run(REF, engine).tending():
        wait_until(lambda: engine.done.count("tend") > 2, "the claim to be tried for again")
    assert engine.starts == [None], "nothing is admitted without the claim"


@pytest.mark.parametrize(("over", "saved"), [(False, True), (True, False)])
def test_output_is_saved_from_the_claim_on_until_the_end_is_seen(over: bool, saved: bool) -> None:
    """Who takes a run over at its end gets its logs with the results; others beside them would stay."""
    engine = Queue(None, free=False)
    asked: list[Saving | None] = []

    def logs(*_: object, saving: Saving | None = None, **__: object) -> Iterator[LogLine]:
        asked.append(saving)
        return iter(())

    engine.logs = logs  # type: ignore[method-assign]
    found = tending.Tending(REF, engine, saving=Saving())
    found._over = over
    engine.free = True
    assert found.is_ours()
    found.end()
    assert bool(asked) is saved


def test_reading_never_asks_for_the_claim() -> None:
    engine = Queue(None)
    engine.story.append(succeeded(at=4.0))
    run = Run(REF, engine)
    assert [event.kind for event in run.events()] == ["recorded", "queued", "finished"]
    assert run.status().state == "succeeded"
    assert (engine.done, engine.starts) == ([], [None])


def test_an_engine_that_looks_after_its_runs_has_no_claim() -> None:
    engine = Queue(None)
    engine.traits = MemoryEngine.traits
    engine.story.append(succeeded(at=4.0))
    assert Run(REF, engine).wait().state == "succeeded"
    assert set(engine.done) == {"collect"}
