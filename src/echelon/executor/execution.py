"""The steps of a run as runs of an engine, beside each other as far as their order and the room allow.

One thread for each step that runs; the thread that called starts what has become ready and passes on a stop.
A step that fails leaves the steps after it out; others continue. A step that an earlier executor of the same
parent has left running is followed and not started again."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from echelon.engines.abilities import StopOrder
from echelon.engines.base import Engine, RunDamaged
from echelon.errors import EchelonError, ResultsIncomplete, RunExists, UnknownRun
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import STEP, check_name
from echelon.model.program import DONE, OVER, Parent, Step
from echelon.model.run import RunRef, opening_status
from echelon.model.status import FINAL, Status, apply
from echelon.model.step_names import run_name
from echelon.submit import Prepared, submit
from echelon.values import frozen

_LOOK = 0.1  # seconds between two looks for a stop
_MOST_REFUSED = 100  # steps without room in one look; of a sweep, thousands wait
_STOPPED = "the run was stopped"
_WITHDRAWN = 60.0  # seconds for a run to end that an earlier executor has left, and that is not wanted


@frozen
class Submission:
    """A step as a job; `key` is a digest of all that its result depends on."""

    prepared: Prepared
    key: str = ""


class Work(Protocol):
    """What the steps are. Several threads call it, each for a step of its own."""

    def has_room(self, steps: Sequence[str]) -> bool:
        """Whether these steps may be at work at the same time."""

    def begins(self, step: Step) -> Step:
        """The step starts now, after all for which this was called before. May say more of it."""

    def prepare(self, step: Step) -> Submission | Step:
        """What a step runs; or the step, if it is over without a run."""

    def starts(self, step: Step) -> None:
        """The step's run is submitted now."""

    def ended(self, step: Step, status: Status) -> Step:
        """What has become of a step whose run has ended."""

    def changed(self, step: Step) -> None:
        """A step stands otherwise than before: to be written down before it is told."""


@dataclass(slots=True)
class _Ended:
    step: Step
    error: BaseException | None = None


class Execution:
    """All steps of one parent, from the first to the last."""

    def __init__(
        self,
        parent: str,
        steps: Iterable[Step],
        work: Work,
        engine: Engine,
        report: Callable[[Event], object],
        asked: Callable[[], StopOrder | None] = lambda: None,
    ) -> None:
        """`steps` stand as they did when the last executor ended: those that are over stay as they are, one
        that was at work is looked for. `asked` is the stop that was asked for, if one was.
        """
        self._parent, self._work, self._engine = parent, work, engine
        self._report, self._asked = report, asked
        self.steps = {step.name: step for step in steps}
        self._left_running = {
            name for name, step in self.steps.items() if step.state not in OVER and step.state != "waiting"
        }
        self._running: set[str] = set()
        self._runs: dict[str, Run] = {}
        self._ended: queue.SimpleQueue[_Ended] = queue.SimpleQueue()
        self._told: StopOrder | None = None  # the stop that the running steps got
        self._crashed = False
        self._refused = 0  # steps of this look that could start, and have no room
        self._lock = threading.Lock()

    def run(self) -> None:
        """Run the steps that are not over, each after those that it comes after, until all are."""
        for name in [name for name, step in self.steps.items() if step.state not in OVER]:
            self.steps[name] = replace(self.steps[name], state="waiting", run="", reason="", hint="")
            self._work.changed(self.steps[name])
        self._report(Event(kind="steps", at=time.time(), steps=tuple(self.steps.values())))
        waiting = [name for name, step in self.steps.items() if step.state == "waiting"]
        try:
            while waiting or self._running:
                waiting = self._leave_out(waiting) if self._is_stopped() else self._start_ready(waiting)
                if self._running:
                    with suppress(queue.Empty):
                        self._take(self._ended.get(timeout=_LOOK))
        except BaseException:
            self._crashed = True
            self._stop_runs(StopOrder())
            raise

    def note(self, text: str) -> None:
        """Tell the user something."""
        self._report(Event(kind="note", at=time.time(), reason=text))

    # Stopping

    def _is_stopped(self) -> bool:
        """Whether no further step is to start; what was asked for anew is passed on."""
        order = self._asked()
        if order is not None and order != self._told:
            self._told = order
            self._stop_runs(order)
        return order is not None

    def _stop_runs(self, order: StopOrder) -> None:
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            self._stop_run(run, order)

    def _stop_run(self, run: Run, order: StopOrder) -> None:
        try:
            if order.signal == "SIGKILL":
                run.stop(now=True, wait=False)
            else:
                run.stop(signal=order.signal, grace=order.grace, wait=False)
        except EchelonError as error:
            self.note(f"run {run.name} cannot be stopped: {error}")

    def _leave_out(self, waiting: list[str]) -> list[str]:
        for name in waiting:
            self._change(replace(self.steps[name], state="not-reached", reason=_STOPPED))
        return []

    # Starting

    def _start_ready(self, waiting: list[str]) -> list[str]:
        """Start what can start; returns what still waits."""
        while True:
            self._refused, left = 0, []
            for at, name in enumerate(waiting):
                if self._refused == _MOST_REFUSED:
                    left += waiting[at:]
                    break
                if not self._is_settled(self.steps[name]):
                    left.append(name)
            if len(left) == len(waiting):
                return left
            waiting = left  # what is not reached keeps others from being reached

    def _is_settled(self, step: Step) -> bool:
        """Start a step, or leave it out, if that can be said by now."""
        before = [self.steps[name] for name in step.after]
        broken = next((each for each in before if each.state in OVER - DONE), None)
        if broken is not None:
            reason = f"step {broken.name} {broken.state.replace('-', ' ')}"
            self._change(replace(step, state="not-reached", reason=reason))
            return True
        if not all(each.state in DONE for each in before):
            return False
        together = [*self._running, step.name]
        if len(together) == 1 or self._work.has_room(together):
            return self._begin(step)
        self._refused += 1
        return False

    def _begin(self, step: Step) -> bool:
        """Start a step, unless a stop was asked for; returns whether it did."""
        with self._lock:
            if self._asked() is not None:
                return False
            self._running.add(step.name)
            begun = self._work.begins(step)
            self._tell(replace(begun, state="recorded", started=time.time()))
        threading.Thread(target=self._try, args=(step.name,), name=step.name, daemon=True).start()
        return True

    def _change(self, step: Step) -> None:
        with self._lock:
            self._tell(step)

    def _tell(self, step: Step) -> None:
        """Write down how a step stands, and then report it; the caller holds the lock."""
        self.steps[step.name] = step
        self._work.changed(step)
        self._report(Event(kind="steps", at=time.time(), steps=(step,)))

    def _take(self, ended: _Ended) -> None:
        step = ended.step
        self._running.remove(step.name)
        with self._lock:
            self._runs.pop(step.name, None)
        if ended.error is not None:
            if not isinstance(ended.error, EchelonError):
                raise ended.error
            error = ended.error
            step = replace(
                self.steps[step.name],
                state="failed",
                ended=time.time(),
                reason=error.message,
                hint=error.hint or "",
                exit_code=error.exit_code,
            )
        self._change(step)

    # One step, in a thread of its own

    def _try(self, name: str) -> None:
        step = self.steps[name]
        try:
            self._ended.put(_Ended(self._run_step(step)))
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._ended.put(_Ended(step, error))

    def _run_step(self, step: Step) -> Step:
        ready = self._work.prepare(step)
        name = run_name(self._parent, step.name)
        key = "" if isinstance(ready, Step) else ready.key
        own = Parent(run=self._parent, step=step.name, key=key)
        there = self._left_behind(step.name, name, own)
        if isinstance(ready, Step):
            return replace(ready, ended=time.time())
        if there is None and (self._asked() is not None or self._crashed):
            return replace(step, state="not-reached", started=None, reason=_STOPPED)
        run = self._submit(step, ready, name, own) if there is None else self._take_up(ready, there, own)
        with self._lock:
            self._runs[step.name] = run
        if (order := self._asked()) is not None or self._crashed:  # it may not have seen this run
            self._stop_run(run, order or StopOrder())
        status = self._follow(step, run)
        return self._work.ended(self.steps[step.name], status)

    def _submit(self, step: Step, ready: Submission, name: str, own: Parent) -> Run:
        check_name(name)
        self._work.starts(step)
        return submit(_with_parent(ready, own), self._engine, stays=True, replace=True)

    def _take_up(self, ready: Submission, there: Run, own: Parent) -> Run:
        """What an earlier executor has left: if it was killed while it submitted the run, nothing else will
        start that, and the same submission completes it.
        """
        state = there.status(progress=False).state
        if state in ("recorded", "starting"):
            with suppress(RunExists):  # its submission was complete
                again = _with_parent(ready, own)
                return submit(again, self._engine, stays=True, replace=state == "recorded")
        return there

    def _left_behind(self, step: str, name: str, own: Parent) -> Run | None:
        """The run that an earlier executor has started for the same, if it is active, or has succeeded since.
        One that is active for something else is ended, so that another can take its place.
        """
        try:
            record = self._engine.read(RunRef(engine="", name=name))
        except (UnknownRun, RunDamaged):
            return None
        if record.job.parent is None or record.job.parent.run != self._parent:
            if own.key:  # it would be replaced
                raise RunExists(
                    f"there is a run {name!r} already, which is not {step} of {self._parent}",
                    hint=f"`echelon rm {name}` forgets it, once it has ended",
                )
            return None
        run = Run(record.ref, self._engine)
        state = run.status(progress=False).state
        if record.job.parent == own and own.key:
            if state not in FINAL or (state == "succeeded" and step in self._left_running):
                return run
        elif state not in FINAL:
            run.stop(wait=False)
            run.wait(_WITHDRAWN, show=False)
        return None

    def _follow(self, step: Step, run: Run) -> Status:
        """Look after a step's run until it has ended, and have its results."""
        missing: list[ResultsIncomplete] = []

        def collect() -> None:
            try:
                run.collect()
            except ResultsIncomplete as error:  # of a step that failed, its end is reported all the same
                missing.append(error)

        seen = opening_status(self._engine.read(RunRef(engine="", name=run.name)))
        known = self.steps[step.name]

        def watch(event: Event) -> None:
            nonlocal seen, known
            seen = apply(seen, event)
            now = replace(known, run=str(run), state=seen.state, reason=seen.reason or "")
            if seen.state not in FINAL and now != known:
                known = now
                self._change(now)

        status = run.wait(show=False, collect=collect, watch=watch)
        if missing and status.state == "succeeded":
            raise missing[0]
        return status


def _with_parent(ready: Submission, own: Parent) -> Prepared:
    """What a step's run is, as the run that it is."""
    job = ready.prepared.job
    return replace(ready.prepared, job=replace(job, parent=own, env={**job.env, STEP: own.step}))
