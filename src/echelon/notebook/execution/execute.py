"""The steps of a pipeline as runs of an engine, in parallel by the graph.

One thread for each step that runs; the thread that called waits for them, starts what has become ready, and
writes the record. A step that fails leaves the steps after it out; steps of other branches go on."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from echelon.engines.base import Engine
from echelon.errors import EchelonError, ResultsIncomplete
from echelon.handle import Run
from echelon.model.job import check_name
from echelon.model.output.log import LogLine
from echelon.model.settings import Settings
from echelon.model.status import Status
from echelon.model.step_names import run_name
from echelon.notebook.analysis.pipeline import Pipeline, Step
from echelon.notebook.execution.places import Entries, Place, read_object
from echelon.notebook.execution.program import key_of, sources_of, specification
from echelon.notebook.kept.cache import set_aside, take_over
from echelon.notebook.kept.folder import (
    HAS_VALUES,
    PipelineFolder,
    PipelineRecord,
    StepRecord,
    is_to_stop,
    published,
    write_record,
)
from echelon.submit import submit
from echelon.values import frozen

_NOT_STARTED = StepRecord(state="not-reached", reason="the pipeline run was stopped")


class Watcher(Protocol):
    """What wants to know how a pipeline goes; called from several threads."""

    def changed(self, step: str, record: StepRecord) -> None:
        """A step stands otherwise than before."""

    def line(self, step: str, line: LogLine) -> None:
        """A process of a step has written a line."""

    def notice(self, text: str) -> None:
        """Something that the user should know."""


@frozen
class Options:
    """How a pipeline is run."""

    python: str | None = None
    cache: bool = False
    restarts: int = 0  # of a step, after a failure
    parallel: int | None = None  # workers at the same time
    no_gpus: bool = False  # whatever the tags ask for
    pods: Settings = field(default_factory=Settings)  # in a cluster, for all steps
    image: str | None = None  # in a cluster, before the one that the notebook names
    volume: str | None = None  # in a cluster: pvc:NAME[/PATH] or new:[SIZE][@CLASS]
    volume_mode: str | None = None  # of a new one: rwx or rwo


@dataclass(slots=True)
class _Ended:
    step: str
    record: StepRecord
    error: BaseException | None = None


class Execution:
    """One pipeline run, from its first step to its last."""

    def __init__(
        self,
        pipeline: Pipeline,
        folder: PipelineFolder,
        record: PipelineRecord,
        engine: Engine,
        place: Place,
        watcher: Watcher,
        options: Options,
    ) -> None:
        self._pipeline, self._folder, self._engine = pipeline, folder, engine
        self._place, self._watcher, self._options = place, watcher, options
        self.record = record
        self.began = False  # whether a process of any step has run
        self._running: dict[str, Step] = {}
        self._runs: dict[str, Run] = {}
        self._ended: queue.SimpleQueue[_Ended] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    def run(self, todo: Collection[str]) -> PipelineRecord:
        """Run these steps, each after those it comes after; returns how all stand then."""
        self._place.open()
        waiting = [step for step in self._pipeline.steps if step.name in todo]
        for step in waiting:
            self._note(step.name, StepRecord())
        try:
            while waiting or self._running:
                waiting = self._leave_out(waiting) if self._is_stopped() else self._start_ready(waiting)
                if self._running:
                    self._take(self._ended.get())
        except BaseException:
            self._stop_all()
            raise
        return self.record

    def _is_stopped(self) -> bool:
        """Whether this command, or a `stop` from elsewhere, wants no further step."""
        return self._stopping.is_set() or is_to_stop(self._folder)

    def _leave_out(self, waiting: list[Step]) -> list[Step]:
        """Start none of these, since the pipeline run is stopped, and stop what runs; returns what waits."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._stop_runs()
        for step in waiting:
            self._note(step.name, _NOT_STARTED)
        return []

    def _start_ready(self, waiting: list[Step]) -> list[Step]:
        """Start what can start; returns what still waits."""
        while True:
            left = [step for step in waiting if not self._is_settled(step)]
            if len(left) == len(waiting):
                return left
            waiting = left  # what is not reached keeps others from being reached

    def _is_settled(self, step: Step) -> bool:
        """Start a step, or leave it out, if that can be said by now."""
        states = {name: self.record.steps[name].state for name in step.after}
        broken = [name for name, state in states.items() if state in ("failed", "stopped", "not-reached")]
        if broken:
            reason = f"step {broken[0]} {states[broken[0]].replace('-', ' ')}"
            self._note(step.name, StepRecord(state="not-reached", reason=reason))
            return True
        if all(state in HAS_VALUES for state in states.values()) and self._has_room(step):
            self._begin(step)
            return True
        return False

    def _has_room(self, step: Step) -> bool:
        together = [*self._running.values(), step]
        if len(together) == 1:
            return True
        if (most := self._options.parallel) is not None:
            return sum(each.size.workers for each in together) <= most
        return self._place.has_room(together)

    def _begin(self, step: Step) -> None:
        self._running[step.name] = step
        run = run_name(self._folder.name, step.name)
        self._note(step.name, StepRecord(state="running", run=run, started=time.time()))
        threading.Thread(target=self._work, args=(step, run), name=step.name, daemon=True).start()

    def _work(self, step: Step, run: str) -> None:
        record = self.record.steps[step.name]
        try:
            self._ended.put(_Ended(step.name, self._run_step(step, run, record)))
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._ended.put(_Ended(step.name, record, error))

    def _take(self, ended: _Ended) -> None:
        self._running.pop(ended.step)
        record = replace(ended.record, submitted=self._runs.pop(ended.step, None) is not None)
        if ended.error is not None:
            if not isinstance(ended.error, EchelonError):
                raise ended.error
            error = ended.error
            record = replace(record, state="failed", ended=time.time(), exit_code=error.exit_code)
            record = replace(record, reason=error.message, hint=error.hint or "")
        self._note(ended.step, record)

    def _note(self, step: str, record: StepRecord) -> None:
        with self._lock:
            self.record = replace(self.record, steps={**self.record.steps, step: record})
            write_record(self._folder, self.record)
        self._watcher.changed(step, record)

    def _stop_runs(self) -> None:
        for run in list(self._runs.values()):
            try:
                run.stop(wait=False)
            except EchelonError as error:
                self._watcher.notice(f"run {run.name} cannot be stopped: {error}")

    def _stop_all(self) -> None:
        self._stopping.set()
        try:
            self._stop_runs()
            self._note_not_started()
            while self._running:
                ended = self._ended.get()
                self._running.pop(ended.step)
                self._note(ended.step, _stopped(ended.record))
        finally:  # a second Ctrl-C: they are told to stop, and this command does not wait for them
            for name in self._running:
                self._note(name, _stopped(self.record.steps[name]))
            self._note_not_started()

    def _note_not_started(self) -> None:
        for name in [name for name, step in self.record.steps.items() if step.state == "waiting"]:
            self._note(name, _NOT_STARTED)

    # One step

    def _run_step(self, step: Step, run: str, record: StepRecord) -> StepRecord:
        came = sources_of(self._pipeline, step, self._folder)
        specified = specification(self._pipeline, step, self._folder, came.entries)
        record = replace(
            record, key=key_of(self._pipeline, step, specified, came.digests, self._surroundings(step))
        )
        use = self._place.caches and (
            self._options.cache if step.options.cache is None else step.options.cache
        )
        if use and (earlier := take_over(self._folder, _base(self._folder.name), step.name, record.key)):
            return replace(
                record,
                state="cached",
                reason=f"from {earlier.run}",
                ended=time.time(),
                files=earlier.step.files,
                metrics=earlier.step.metrics,
            )
        if self._is_stopped():
            return _NOT_STARTED
        set_aside(self._folder.results(step.name))
        files = self._place.files()
        status = self._follow(step, self._submit(step, run, came.entries))
        self._place.settle(step)
        self.began = self.began or _has_run(status)
        made = {name: stamp for name, stamp in self._place.files().items() if files.get(name) != stamp}
        return self._outcome(step, replace(record, files=made, ended=time.time()), status)

    def _surroundings(self, step: Step) -> list[object]:
        """What a step can see besides code and variables: the Python, files beside the notebook, and files
        that the steps before have made, by the keys of those steps.
        """
        before = {name: self.record.steps[name] for name in sorted(step.before)}
        made = [[name, each.key, sorted(each.files)] for name, each in before.items() if each.files]
        return [self._place.runs_with(step), self._place.beside(), made]

    def _submit(self, step: Step, run: str, entries: Entries) -> Run:
        check_name(run)
        prepared = self._place.prepare(step, run, entries)
        handle = submit(prepared, self._engine, stays=True, replace=True)
        with self._lock:
            self._runs[step.name] = handle
        if self._is_stopped():  # the `stop` may not have seen this run
            handle.stop(wait=False)
        return handle

    def _follow(self, step: Step, run: Run) -> Status:
        threading.Thread(target=self._tell_waiting, args=(step, run), name="waiting", daemon=True).start()
        with run.tending():
            for line in run.logs(follow=True):
                self._watcher.line(step.name, line)
        missing: list[ResultsIncomplete] = []

        def collect() -> None:
            try:
                run.collect()
            except ResultsIncomplete as error:  # of a step that failed, how it did is told all the same
                missing.append(error)

        status = run.wait(show=False, collect=collect)
        if missing and status.state == "succeeded":
            raise missing[0]
        return status

    def _tell_waiting(self, step: Step, run: Run) -> None:
        """Tell why a step does not run yet."""
        with suppress(EchelonError, OSError):  # reading the lines fails in the same way
            for event in run.events():
                if event.kind in ("queued", "waiting") and event.reason:
                    self._watcher.notice(f"step {step.name}: {event.reason}")

    def _outcome(self, step: Step, record: StepRecord, status: Status) -> StepRecord:
        results = self._folder.results(step.name)
        if status.state == "succeeded":
            metrics = published(self._folder, step.name).get("metrics", {})
            return replace(record, state="succeeded", exit_code=0, metrics=metrics)
        failure = _failure(results)
        state: Any = "stopped" if status.state == "stopped" else "failed"
        cause = status.root_cause
        reason = failure.get("error") or (cause.summary if cause is not None else None) or status.reason
        return replace(
            record,
            state=state,
            cell=failure.get("cell") or (self._place.last_cell(step) if _has_run(status) else None),
            line=failure.get("line") or None,
            reason=str(reason or status.state),
            hint=(cause.hint if cause is not None else None) or "",
            traceback=str(failure.get("traceback") or "\n".join(cause.tail if cause is not None else ())),
            exit_code=status.exit_code,
        )


def _stopped(record: StepRecord) -> StepRecord:
    """How a step stands that was told to stop; one that had ended by then, as it did."""
    return replace(record, state="stopped", ended=time.time()) if record.state == "running" else record


def _base(name: str) -> str:
    return name.rpartition("-")[0]


def _has_run(status: Status) -> bool:
    """Whether a process of a step has run: only then can there be something of it."""
    return bool(status.state == "succeeded" or status.training_since or status.root_cause)


def _failure(results: Path) -> dict[str, Any]:
    """What the step's process, or that of another worker, has written about its failure."""
    for path in (results / "failure.json", *sorted(results.glob("worker-*/failure.json"))):
        if found := read_object(path):
            return found
    return {}


__all__ = ["Execution", "Options", "Watcher"]
