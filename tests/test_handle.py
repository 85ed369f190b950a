"""The handle on a run, over an engine that says what a test wants: every line is shown, and once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from echelon.engines.base import Engine
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.errors import RunTimedOut
from echelon.handle import Run, whole_lines
from echelon.model.ends import worker_lost
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.log import LogLine
from echelon.model.run import Record, RunRef
from echelon.model.traits import Traits
from echelon.prepare import Prepared
from echelon.submit import submit


def line(text: str, *, worker: int = 0, at: float = 1.0, unfinished: bool = False) -> LogLine:
    return LogLine(text=text, at=at, worker=worker, rank=worker, unfinished=unfinished)


class Growing:
    """An engine whose run writes more between two looks."""

    def __init__(self, before: list[LogLine], after: list[LogLine]) -> None:
        self.before, self.after = before, after

    def read(self, _ref: RunRef) -> Record:
        ref = RunRef(engine="memory", name="fm")
        return Record(ref=ref, job=Job(name="fm", script="x"), created=0.0, owner="me", results="runs/fm")

    def logs(self, _ref: RunRef, *, follow: bool = False, **_more: object) -> Iterator[LogLine]:
        yield from [*self.before, *self.after] if follow else self.before


def handle(before: list[LogLine], after: list[LogLine]) -> Run:
    engine: Engine = Growing(before, after)  # type: ignore[assignment]
    return Run(RunRef(engine="memory", name="fm"), engine)


@pytest.mark.parametrize("tail", [0, 1, 2, 9])
def test_the_last_lines_and_then_what_comes(tail: int) -> None:
    before = [line("a"), line("b", worker=1), line("c")]
    after = [line("late, of an earlier time", worker=1, at=0.5), line("d"), line("d")]
    shown = [each.text for each in handle(before, after).logs(tail=tail, follow=True)]
    expected = [each.text for each in before][-tail or len(before) :] + [each.text for each in after]
    assert shown == expected


def test_pieces_become_lines() -> None:
    pieces = [
        line("a", unfinished=True),
        line("x", worker=1),
        line("b", unfinished=True),
        line("c", at=2.0),
        line("d", unfinished=True, at=3.0),
    ]
    made = list(whole_lines(iter(pieces)))
    assert [(each.text, each.worker, each.at) for each in made] == [
        ("x", 1, 1.0),
        ("abc", 0, 2.0),
        ("d", 0, 3.0),
    ]
    assert not any(each.unfinished for each in made)


class Forgetful(Growing):
    """An engine that tells a run's end to those who follow it, and forgets it: what told the end is gone, and
    a worker comes that was to replace the lost one.
    """

    traits = Traits(place="memory", keeps_queue=True)

    def events(self, _ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        yield Event(kind="admitted", at=1.0)
        if follow and timeout is None:
            yield worker_lost(0, "its pod was deleted", at=2.0)

    def collect(self, *_: object) -> tuple[()]:
        return ()


def test_an_end_that_was_told_is_the_end_though_another_look_does_not_show_it() -> None:
    engine: Engine = Forgetful([], [])  # type: ignore[assignment]
    run = Run(RunRef(engine="memory", name="fm"), engine)
    found = run.wait(show=False)
    assert (found.state, found.root_cause is not None) == ("failed", True)
    with pytest.raises(RunTimedOut, match="is still"):
        run.wait(0.01, show=False)


def test_an_interrupt_says_that_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the traceback, which a script and a cell show."""
    engine = MemoryEngine()
    ref = engine.record(Job(name="fm", script="x"), None)

    def interrupted(*_: object, **__: object) -> Iterator[Event]:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "events", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        Run(ref, engine).wait(show=False)
    assert "run 'fm' goes on; run.stop()" in caught.value.__notes__[0]


def test_to_stop_a_run_in_a_notebook_prints_none_of_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("echelon.handle.in_notebook", lambda: True)
    monkeypatch.setattr("echelon.panel.Panel.show_curves", lambda _: None)
    engine = MemoryEngine({"x.py": Act(lines=("a line",), lasts=True)})
    job = Job(name="fm", script="x.py", framework="plain")
    run = submit(Prepared(job=job), engine, stays=False)
    stop, events = engine.stop, engine.events

    def stopped_while_it_is_waited_for(ref: RunRef, **more: Any) -> Iterator[Event]:
        if more.get("follow"):
            stop(ref)
        return events(ref, **more)

    monkeypatch.setattr(engine, "stop", lambda *_, **__: None)
    monkeypatch.setattr(engine, "events", stopped_while_it_is_waited_for)
    run.stop()
    assert run.status().state == "stopped"
    assert capsys.readouterr().out == ""
