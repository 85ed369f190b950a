"""The handle on a run, over an engine that says what a test wants: every line is shown, and once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelon.cli.following.follow import follow
from echelon.cli.printing.render import collecting
from echelon.engines.base import Engine
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.engines.recent import note_started
from echelon.errors import ResultsIncomplete, RunTimedOut
from echelon.handle import Run
from echelon.model.copy import LeftOut
from echelon.model.ends import succeeded, worker_lost
from echelon.model.engine.traits import Traits
from echelon.model.event import Event, RootCause
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.model.run import Record, RunRef
from echelon.model.status import Status
from echelon.preparation.prepare import Prepared
from echelon.submit import submit


def line(text: str, *, worker: int = 0, at: float = 1.0, unfinished: bool = False) -> LogLine:
    return LogLine(text=text, at=at, worker=worker, rank=worker, unfinished=unfinished)


class Growing:
    """An engine whose run writes more between two looks."""

    traits = Traits(place="a list")

    def __init__(self, before: list[LogLine], after: list[LogLine]) -> None:
        self.before, self.after = before, after

    def read(self, _ref: RunRef) -> Record:
        ref = RunRef(engine="memory", name="fm")
        return Record(ref=ref, job=Job(name="fm", script="x"), created=0.0, owner="me", results="runs/fm")

    def logs(self, _ref: RunRef, *, follow: bool = False, **_more: object) -> Iterator[LogLine]:
        yield from [*self.before, *self.after] if follow else self.before

    def earlier_output(self, _ref: RunRef) -> Iterator[LogLine]:
        return iter(())


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


class Forgetful(Growing):
    """An engine that tells a run's end to those who follow it, and forgets it: what told the end is gone, and
    a worker comes that was to replace the lost one.
    """

    traits = Traits(place="memory", keeps_queue=True)

    def events(self, _ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        yield Event(kind="admitted", at=1.0)
        if follow and timeout is None:
            yield worker_lost(0, "its pod was deleted", at=2.0)

    def output(self, *_: object, **__: object) -> Iterator[LogLine]:
        return iter(())

    def collect(self, *_: object) -> tuple[()]:
        return ()


def test_an_end_that_was_told_is_the_end_though_another_look_does_not_show_it() -> None:
    engine: Engine = Forgetful([], [])  # type: ignore[assignment]
    run = Run(RunRef(engine="memory", name="fm"), engine)
    found = run.wait(show=False)
    assert (found.state, found.root_cause is not None) == ("failed", True)
    with pytest.raises(RunTimedOut, match=r"is still .* after 0\.0 s"):
        run.wait(0.01, show=False)
    with pytest.raises(RunTimedOut, match=r"is still .* after 5 m 0 s"):  # the fake's events end at once
        run.wait("5m", show=False)


def test_a_command_that_was_told_the_end_ends_as_the_run_did(capsys: pytest.CaptureFixture[str]) -> None:
    """Results that are lost with a worker do not hide that it was lost."""

    class Lost(Forgetful):
        def collect(self, *_: object) -> tuple[()]:
            raise ResultsIncomplete("the results of run 'fm' are not all here", hint="it is lost for good")

    engine: Engine = Lost([], [])  # type: ignore[assignment]
    run = Run(RunRef(engine="memory", name="fm"), engine)
    assert follow(run, run.job(), "text", raw=True) == 117
    assert "are not all here" in capsys.readouterr().err


def test_results_that_nobody_fetched_since_the_end_was_gone_again_are_missed() -> None:
    class Done(Forgetful):
        def events(self, *_: object, follow: bool = False, **__: object) -> Iterator[Event]:
            yield Event(kind="admitted", at=1.0)
            if follow:
                yield succeeded(at=2.0)

    engine: Engine = Done([], [])  # type: ignore[assignment]
    run = Run(RunRef(engine="memory", name="fm"), engine)
    with pytest.raises(ResultsIncomplete, match="was seen once"):
        follow(run, run.job(), "text", raw=True)


def test_an_interrupt_says_that_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the traceback, which a script and a cell show."""
    engine = MemoryEngine()
    ref = engine.record(Job(name="fm", script="x"), None)

    def interrupted(*_: object, **__: object) -> Iterator[Event]:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "events", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        Run(ref, engine).wait(show=False)
    assert "run 'fm' continues; run.stop()" in caught.value.__notes__[0]


class Incomplete(Growing):
    """An engine whose run has results that cannot be copied, and some that are missing."""

    def __init__(self, *, missing: bool) -> None:
        super().__init__([], [])
        self.missing = missing

    def collect(self, *_: object) -> Sequence[LeftOut]:
        left_out = (LeftOut(path="pipe", why="a pipe"),)
        if self.missing:
            error = ResultsIncomplete("the results are not all here")
            error.left_out = left_out
            raise error
        return left_out


@pytest.mark.parametrize("missing", [False, True])
def test_what_cannot_be_copied_is_told_also_where_something_is_missing(
    missing: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    engine: Engine = Incomplete(missing=missing)  # type: ignore[assignment]
    run = Run(RunRef(engine="memory", name="fm"), engine)
    told: list[LeftOut] = []
    with pytest.raises(ResultsIncomplete) if missing else nullcontext():
        run.collect(notice=told.append)
    assert [each.path for each in told] == ["pipe"]
    with pytest.raises(ResultsIncomplete) if missing else nullcontext():
        collecting(run)
    assert "not copied: pipe: a pipe" in capsys.readouterr().err


class Shipped(Growing):
    """An engine whose run was shipped its code."""

    def read(self, ref: RunRef) -> Record:
        found = super().read(ref)
        return replace(found, job=replace(found.job, cwd="{code}", script="train.py"))


def test_what_did_not_travel_is_told_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the folder has it from which the run was started."""
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "state"))
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (project / "data").mkdir(parents=True)
    elsewhere.mkdir()
    for name in ("pyproject.toml", "train.py", "data/a.csv"):
        (project / name).touch()
    (project / ".gitignore").write_text("data/\n")
    engine: Engine = Shipped([], [])  # type: ignore[assignment]
    run = Run(RunRef(engine="memory", name="fm"), engine)
    error = "FileNotFoundError: [Errno 2] No such file or directory: 'data/a.csv'"
    cause = RootCause(summary="rank 0 failed", rank=0, error=error)
    failed = Status(name="fm", uri=run.uri, state="failed", root_cause=cause)
    monkeypatch.chdir(elsewhere)
    assert run.advice(failed) is None, "nothing says where it was started"
    monkeypatch.chdir(project)
    note_started(run.uri)
    assert (run.advice(failed) or "").startswith("data/a.csv is here")
    monkeypatch.chdir(elsewhere)
    advice = run.advice(failed) or ""
    assert advice.startswith(f"{project}/data/a.csv is here")
    assert "--include data/ ships it" in advice


def test_to_stop_a_run_in_a_notebook_prints_none_of_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("echelon.handle.in_notebook", lambda: True)
    monkeypatch.setattr("echelon.observation.panel.Panel.show_curves", lambda _: None)
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
