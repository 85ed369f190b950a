"""The steps of a notebook as an executor's work: what each runs, whether an earlier run has its result, and
what has become of it. What must outlive the executor is written into the pipeline run's record."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.executor.execution import Submission
from echelon.model.program import DONE, OVER, Step
from echelon.model.status import Status
from echelon.model.step_names import run_name
from echelon.notebook.analysis.pipeline import Pipeline
from echelon.notebook.analysis.pipeline import Step as NotebookStep
from echelon.notebook.execution.places import Files, StepHost, read_object
from echelon.notebook.execution.program import key_of, sources_of, specification
from echelon.notebook.kept.cache import set_aside, take_over
from echelon.notebook.kept.folder import (
    PipelineFolder,
    PipelineOptions,
    PipelineRecord,
    StepRecord,
    published,
    write_record,
)
from echelon.notebook.kept.report import load_beside

# What stands in the events of the run and in the record of a step.
_IN_BOTH = ("state", "run", "started", "ended", "reason", "hint", "exit_code", "cell", "line")


class NotebookSteps:
    """Those of one pipeline run."""

    def __init__(
        self,
        pipeline: Pipeline,
        folder: PipelineFolder,
        record: PipelineRecord,
        place: StepHost,
        options: PipelineOptions,
    ) -> None:
        self._steps = {step.name: step for step in pipeline.steps}
        self._pipeline, self._folder, self._place, self._options = pipeline, folder, place, options
        self.record = record
        self._before: dict[str, Files] = {}  # the files that there were when a step began
        self._lock = threading.Lock()

    def has_room(self, steps: Sequence[str]) -> bool:
        """As many as the user said, else as the place has room for."""
        together = [self._steps[name] for name in steps]
        if (most := self._options.parallel) is not None:
            return sum(each.size.workers for each in together) <= most
        return self._place.has_room(together)

    def begins(self, step: Step) -> Step:
        """All is known of it."""
        return step

    def prepare(self, step: Step) -> Submission | Step:
        """The step as a job, unless an earlier run's result can be taken over."""
        own = self._steps[step.name]
        came = sources_of(self._pipeline, own, self._folder)
        specified = specification(self._pipeline, own, self._folder, came.entries)
        key = key_of(self._pipeline, own, specified, came.digests, self._surroundings(own))
        self._note(step.name, key=key)
        use = self._options.cache if own.options.cache is None else own.options.cache
        if use and self._place.caches and (found := self._taken_over(step, key)) is not None:
            return found
        name = run_name(self._folder.name, step.name)
        prepared = self._place.prepare(own, name, came.entries)
        return Submission(prepared=prepared, key=key)

    def _taken_over(self, step: Step, key: str) -> Step | None:
        earlier = take_over(self._folder, self._folder.name.rpartition("-")[0], step.name, key)
        if earlier is None:
            return None
        self._note(step.name, files=earlier.step.files, metrics=earlier.step.metrics)
        return replace(step, state="cached", reason=f"from {earlier.run}")

    def _surroundings(self, step: NotebookStep) -> list[object]:
        """What a step can see besides code and variables: the Python, files beside the notebook, and files
        that the steps before have made, by the keys of those steps.
        """
        before = {name: self.record.steps[name] for name in sorted(step.before)}
        made = [[name, each.key, sorted(each.files)] for name, each in before.items() if each.files]
        return [self._place.runs_with(step), self._place.beside(), made]

    def starts(self, step: Step) -> None:
        """Results of an earlier start are not those of this one."""
        set_aside(self._folder.results(step.name))
        self._before[step.name] = self._place.files()

    def ended(self, step: Step, status: Status) -> Step:
        """By the end of its run, and by what its process has written down."""
        own, results = self._steps[step.name], self._folder.results(step.name)
        self._place.settle(own)
        before = self._before.get(step.name, {})
        made = {name: stamp for name, stamp in self._place.files().items() if before.get(name) != stamp}
        step = replace(step, ended=status.ended)
        if status.state == "succeeded":
            metrics = published(self._folder, step.name).get("metrics", {})
            self._note(step.name, files=made, metrics=metrics, traceback="")
            return replace(step, state="succeeded", exit_code=0, reason="")
        failure, cause = _failure(results), status.root_cause
        reason = failure.get("error") or (cause.summary if cause is not None else None) or status.reason
        traceback = str(failure.get("traceback") or "\n".join(cause.tail if cause is not None else ()))
        self._note(step.name, files=made, traceback=traceback)
        return replace(
            step,
            state=status.state if status.state in ("stopped", "timed-out") else "failed",
            cell=failure.get("cell") or (self._place.last_cell(own) if _has_run(status) else None),
            line=failure.get("line") or None,
            reason=str(reason or status.state),
            hint=(cause.hint if cause is not None else None) or "",
            exit_code=status.exit_code,
        )

    def changed(self, step: Step) -> None:
        """Write it down, and to the disk when a step is over. While the last ones run, there is time to make
        ready for the report, which comes then.
        """
        self._note(step.name, sync=step.state in OVER, **{name: getattr(step, name) for name in _IN_BOTH})
        if step.state == "running" and all(each.state != "waiting" for each in self.record.steps.values()):
            load_beside()

    def _note(self, name: str, *, sync: bool = False, **changes: Any) -> None:
        with self._lock:
            step = replace(self.record.steps[name], **changes)
            self.record = replace(self.record, steps={**self.record.steps, name: step})
            write_record(self._folder, self.record, sync=sync)


def known(pipeline: Pipeline, record: PipelineRecord) -> dict[str, StepRecord]:
    """What is known of the steps that the notebook has now: it may have been changed since. Pure."""
    return {step.name: record.steps.get(step.name, StepRecord()) for step in pipeline.steps}


def steps_of(record: PipelineRecord) -> list[Step]:
    """The steps as they were written down last, in an order in which they can run."""
    return [
        Step(
            name=node.name,
            after=node.after,
            gets=node.gets,
            size=node.size,
            **{name: getattr(record.steps[node.name], name) for name in _IN_BOTH},
        )
        for node in record.graph
    ]


def opened(steps: Mapping[str, StepRecord], todo: Sequence[str]) -> dict[str, StepRecord]:
    """The same steps for another start: those to be run wait, unless they were running, and what is done is
    kept. Pure.
    """
    return {name: _opened(step, runs=name in todo) for name, step in steps.items()}


def _opened(step: StepRecord, *, runs: bool) -> StepRecord:
    if not runs:
        return replace(step, state="kept", run="") if step.state in DONE else step
    return step if step.run and step.state not in OVER else StepRecord()


def _has_run(status: Status) -> bool:
    """Whether a process of a step has run: only then can there be something of it."""
    return bool(status.state == "succeeded" or status.training_since or status.root_cause)


def _failure(results: Path) -> dict[str, Any]:
    """What the step's process, or that of another worker, has written about its failure."""
    for path in (results / "failure.json", *sorted(results.glob("worker-*/failure.json"))):
        if found := read_object(path):
            return found
    return {}
