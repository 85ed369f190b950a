"""The trials of a sweep as an executor's work: what each runs, how many run beside each other, and what has
become of one."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from echelon.bundle.archive import Bundle
from echelon.engines.base import Engine
from echelon.engines.choose import LOCAL
from echelon.errors import EchelonError
from echelon.executor.execution import Submission
from echelon.handle import Run
from echelon.model.job import Job, asks_for_any, is_function, ranks_asked
from echelon.model.output.metric import Metric
from echelon.model.program import OVER, Step
from echelon.model.run import parse_uri
from echelon.model.status import Status
from echelon.model.step_names import run_name
from echelon.observation.observing import observe
from echelon.preparation.prepare import Prepared
from echelon.sweeps import kept
from echelon.sweeps.kept import Sweep
from echelon.sweeps.objective import Behind, Courses, reached
from echelon.sweeps.search import Sampler, given_to_function
from echelon.sweeps.spaces import PARAMS, filled

_MOST = 100  # trials at the same time, unless the user says so: each is a thread of the executor
_MOST_STARTING = 8
_TABLE_EVERY = 2.0  # seconds


class Trials:
    """Those of one sweep."""

    def __init__(self, sweep: Sweep, bundle: Bundle | None, folder: Path, engine: Engine) -> None:
        self._sweep, self._bundle, self._folder, self._engine = sweep, bundle, folder, engine
        self._trials = {trial.name: trial for trial in sweep.trials}
        self._steps: dict[str, Step] = {}
        self._sampler: Sampler | None = None
        objective = sweep.objective if sweep.early_stop else None
        self._courses = None if objective is None else Courses(objective)
        self._watched: set[str] = set()
        self._behind: dict[str, Behind] = {}  # those that were stopped for it
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

    def begins(self, step: Step) -> Step:
        """With the values that a search chooses for it, unless it had some before."""
        if self._sweep.search is None or self._sweep.objective is None:
            return step
        if self._sampler is None:
            self._sampler = Sampler(self._sweep.search, self._sweep.objective, self._steps.values())
        return replace(step, params=self._sampler.ask(step.name, dict(step.params)))

    def prepare(self, step: Step) -> Submission:
        """The sweep's job with the values of the trial, in its own folder. One that has run before finds what
        it has left there, where that is on this machine.
        """
        here = not self._engine.traits.remote
        job = replace(self.job_of(step), results=str(self._folder / step.name), resume=here)
        return Submission(prepared=Prepared(job=job, bundle=self._bundle), key=self._sweep.key)

    def job_of(self, step: Step) -> Job:
        """What a trial runs."""
        job, search = filled(self._sweep.job, step.params), self._sweep.search
        given = self._trials[step.name].given
        if search is not None and is_function(job):
            given = given_to_function(search, step.params)
        if given:
            job = replace(job, env={**job.env, PARAMS: json.dumps(given)})
        return replace(job, name=run_name(self._sweep.name, step.name))

    def starts(self, step: Step) -> None:
        """Nothing is made ready before a trial."""

    def ended(self, step: Step, status: Status) -> Step:
        """By the end of its run, and by what it has measured."""
        step = replace(step, ended=status.ended, exit_code=status.exit_code, reason="")
        step = replace(step, value=self._reached(step))
        behind = self._behind.get(step.name) if status.state == "stopped" else None
        if self._sampler is not None:
            counts = status.state == "succeeded" or behind is not None
            self._sampler.tell(step.name, step.value if counts else None, ended_early=behind is not None)
        if status.state == "succeeded":
            return replace(step, state="succeeded")
        if behind is not None:
            return replace(step, state="ended-early", exit_code=None, reason=str(behind))
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
        if self._courses is not None and step.state == "running" and step.name not in self._watched:
            self._watched.add(step.name)
            threading.Thread(target=self._watch, args=(step, self._courses), daemon=True).start()
        with self._lock:
            self._steps[step.name] = step
            if step.state in OVER and time.monotonic() > self._written + _TABLE_EVERY:
                self._write_table()

    def _watch(self, step: Step, courses: Courses) -> None:
        """Stop a trial as soon as it is behind the others."""
        ref = parse_uri(step.run, LOCAL)
        with suppress(EchelonError):  # what keeps its output from being read has no effect on the trial
            for each in observe(self._engine, ref, follow=True, events=False):
                if not isinstance(each, Metric):
                    continue
                with self._lock:
                    behind = courses.add(step.name, each)
                if behind is not None:
                    self._behind[step.name] = behind
                    Run(ref, self._engine).stop(wait=False)
                    return

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
    if before.state == "ended-early":
        return replace(before, run="")
    return replace(fresh, params=fresh.params or before.params) if before.state in OVER else before
