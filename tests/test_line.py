"""That whoever follows a run in line keeps trying for it, where nobody else does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from echelon import handle
from echelon.engines.memory.engine import MemoryEngine
from echelon.errors import Refused, Unreachable
from echelon.handle import Run
from echelon.model.cluster import Cluster
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.run import Record, RunRef
from echelon.model.traits import Traits

REF = RunRef(engine="memory", name="fm")
JOB = Job(name="fm", command=("true",), framework="plain")


class Line(MemoryEngine):
    """A run in line at a place where nobody keeps one; `starts` are what starting it comes to, in turn."""

    traits = Traits(place="a test", keeps_queue=False)

    def __init__(self, *starts: Exception | None, queued: bool = True) -> None:
        super().__init__()
        self.starts = list(starts)
        self.story = [Event(kind="recorded", at=1.0)]
        if queued:
            self.story.append(Event(kind="queued", at=2.0, reason="no room"))

    def cluster(self, *, gpus: bool = True, job: Job | None = None) -> Cluster:
        del gpus, job
        return Cluster(nodes=(), known=False)

    def read(self, ref: RunRef) -> Record:
        return Record(ref=ref, job=JOB, created=1.0, owner="ann", results="runs/fm")

    def start(self, ref: RunRef, plan: Plan) -> None:
        del ref, plan
        trouble = self.starts.pop(0)
        if trouble is not None:
            raise trouble
        self.story += [Event(kind="admitted", at=3.0), Event(kind="finished", at=4.0, outcome="succeeded")]

    def events(self, ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        del ref
        yield from self.story
        if follow and self.story[-1].kind != "finished" and len(self.story) > 1:
            time.sleep(timeout or 0.0)  # a run that was cut off is not waited for


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "_LINE_LOOK", (0.01, 0.02))


def told(engine: Line) -> list[str]:
    return [event.kind for event in Run(REF, engine).events()]


def test_it_is_let_in_and_every_event_is_told_once() -> None:
    assert told(Line(None)) == ["recorded", "queued", "admitted", "finished"]


@pytest.mark.parametrize("error", [Unreachable("nobody answers"), Refused("the quota is used up")])
def test_what_keeps_it_out_is_told_once_and_tried_again(error: Exception) -> None:
    engine = Line(error, error, None)
    assert told(engine) == ["recorded", "queued", "waiting", "admitted", "finished"]
    assert engine.starts == []


def test_a_submission_that_was_cut_off_is_not_let_in_by_others() -> None:
    engine = Line(None, queued=False)
    assert told(engine) == ["recorded"]
    assert engine.starts == [None]


def test_another_lets_it_in() -> None:
    engine = Line()
    engine.start = lambda *_: None  # type: ignore[method-assign]
    found: list[str] = []
    following = threading.Thread(target=lambda: found.extend(told(engine)))
    following.start()
    engine.story.append(Event(kind="finished", at=4.0, outcome="stopped"))
    following.join(30)
    assert found == ["recorded", "queued", "finished"]


def test_the_time_limit_holds_in_line_too() -> None:
    engine = Line(*[Unreachable("nobody answers")] * 1000)
    kinds = [event.kind for event in Run(REF, engine)._tended(0.1)]
    assert kinds == ["recorded", "queued", "waiting"]


def test_nothing_is_asked_of_a_place_that_keeps_a_line() -> None:
    engine = Line()
    engine.traits = Traits(place="a test")
    assert told(engine) == ["recorded", "queued"]
