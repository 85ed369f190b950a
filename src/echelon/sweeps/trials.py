"""The trials of a sweep as an executor's work: what each runs, how many run beside each other, and what has
become of one."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from echelon.bundle.archive import Bundle
from echelon.engines.base import Engine
from echelon.engines.choose import LOCAL
from echelon.errors import EchelonError
from echelon.executor.execution import Submission
from echelon.model.job import Job, asks_for_any, ranks_asked
from echelon.model.output.metric import Metric
from echelon.model.program import OVER, Step
from echelon.model.run import parse_uri
from echelon.model.status import Status
from echelon.model.step_names import run_name
from echelon.observation.observing import observe
from echelon.preparation.prepare import Prepared
from echelon.sweeps import kept
from echelon.sweeps.filling import PARAMS, filled
from echelon.sweeps.kept import Sweep
from echelon.sweeps.objective import reached

_MOST = 100  # trials at the same time, unless the user says so: each is a thread of the executor
_MOST_STARTING = 8
_TABLE_EVERY = 2.0  # seconds


class Trials:
    """Those of one sweep."""

    def __init__(self, sweep: Sweep, bundle: Bundle | None, folder: Path, engine: Engine) -> None:
        self._sweep, self._bundle, self._folder, self._engine = sweep, bundle, folder, engine
        self._trials = {trial.name: trial for trial in sweep.trials}
        self._steps: dict[str, Step] = {}
        self._written = 0.0
        self._lock = threading.Lock()
        self.first_failed: Step | None = None

    def has_room(self, steps: Sequence[str]) -> bool:
        """As many as the user said, else as many as this machine has cores, or the queue lets in: none is
        submitted while one of them waits.
        """
        if self._sweep.parallel is not None:
            return len(steps) <= self._sweep.parallel
        job = self._sweep.job
        if not self._engine.traits.remote and not asks_for_any(job):
            return len(steps) * ranks_asked(job) <= (os.cpu_count() or 1)
        states = [self._steps[name].state for name in steps[:-1]]
        starting = sum(state in ("recorded", "starting") for state in states)
        return "queued" not in states and starting < _MOST_STARTING and len(steps) <= _MOST

    def prepare(self, step: Step) -> Submission:
        """The sweep's job with the values of the trial, in its own folder. One that has run before finds what
        it has left there, where that is on this machine.
        """
        here = not self._engine.traits.remote
        job = replace(self.job_of(step.name), results=str(self._folder / step.name), resume=here)
        return Submission(prepared=Prepared(job=job, bundle=self._bundle), key=self._sweep.key)

    def job_of(self, trial: str) -> Job:
        """What a trial runs."""
        job = filled(self._sweep.job, self._trials[trial].values)
        if given := self._trials[trial].given:
            job = replace(job, env={**job.env, PARAMS: json.dumps(given)})
        return replace(job, name=run_name(self._sweep.name, trial))

    def starts(self, step: Step) -> None:
        """Nothing is made ready before a trial."""

    def ended(self, step: Step, status: Status) -> Step:
        """By the end of its run, and by what it has measured."""
        step = replace(step, ended=status.ended, exit_code=status.exit_code, reason="")
        step = replace(step, value=self._reached(step))
        if status.state == "succeeded":
            return replace(step, state="succeeded")
        cause = status.root_cause
        step = replace(
            step,
            state=status.state if status.state in ("stopped", "timed-out") else "failed",
            reason=(cause.summary if cause is not None else None) or status.reason or status.state,
            hint=(cause.hint if cause is not None else None) or "",
        )
        if step.state != "stopped":
            self.first_failed = self.first_failed or step
        return step

    def _reached(self, step: Step) -> float | None:
        if self._sweep.objective is None:
            return None
        try:
            found = observe(self._engine, parse_uri(step.run, LOCAL), events=False)
            return reached((each for each in found if isinstance(each, Metric)), self._sweep.objective)
        except EchelonError:  # its output cannot be read: how it ended is known all the same
            return None

    def changed(self, step: Step) -> None:
        """Note it; the table is written anew, but not for each of many."""
        with self._lock:
            self._steps[step.name] = step
            if step.state in OVER and time.monotonic() > self._written + _TABLE_EVERY:
                self._write_table()

    def write_table(self) -> None:
        """Write the table of all trials."""
        with self._lock:
            self._write_table()

    def _write_table(self) -> None:
        steps = [self._steps[name] for name in self._trials if name in self._steps]
        kept.write_table(self._folder, steps, self._sweep.objective)
        self._written = time.monotonic()


def standing(sweep: Sweep, told: dict[str, Step]) -> list[Step]:
    """The trials for another start: those that succeeded are kept, those that were at work are looked for,
    and all others run.
    """
    return [_opened(Step(name=trial.name, params=trial.values), told) for trial in sweep.trials]


def _opened(fresh: Step, told: dict[str, Step]) -> Step:
    before = told.get(fresh.name)
    if before is None:
        return fresh
    if before.state in ("succeeded", "kept"):
        return replace(before, state="kept", run="")
    return fresh if before.state in OVER else before
