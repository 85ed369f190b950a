"""Run: the one handle on a run, the same for every engine and in any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelon.agent import stopping
from echelon.engines.base import Engine, RunDamaged, Saving, TakeOver
from echelon.errors import EchelonError, InvalidJob, ResultsIncomplete, UnknownRun
from echelon.model.argument import check_argument, checked_path
from echelon.model.copy import LeftOut
from echelon.model.event import Event
from echelon.model.grace import grace_in_pods
from echelon.model.job import GRACE, Job
from echelon.model.output.log import LogBlock, LogLine, whole_lines
from echelon.model.plan import Plan
from echelon.model.pods.way_home import keeps_checkpoints
from echelon.model.resources import parse_duration
from echelon.model.run import Record, RunRef, StopSignal
from echelon.model.status import FINAL, Status, fold, with_progress
from echelon.model.world import rank_count
from echelon.observation.failure import RunFailed, advice_on, failure_of, no_end
from echelon.observation.live import in_notebook, noted_if_left, shown, tell_waiting
from echelon.observation.standing import check_exists, read_standing
from echelon.tending import Tending, tending

if TYPE_CHECKING:
    from echelon.engines.abilities import CopyWatch, ShippedCode
    from echelon.model.engine.usage import RunUsage
    from echelon.model.output.metric import Metric
    from echelon.observation.panel import Display
    from echelon.observation.reasons import Reason
    from echelon.observation.sampling import LiveUsage, NewestSamples
    from echelon.observation.standing import Start
    from echelon.tracking.following import Stays

STOP_PATIENCE = 60.0  # seconds that a run with the usual grace may take to end after the order to stop


class Run:
    """A run that exists, wherever it is.

    `str(run)` is its address, which `echelon.attach` takes in any process.
    """

    def __init__(self, ref: RunRef, engine: Engine) -> None:
        self._ref = ref
        self._engine = engine

    def __str__(self) -> str:
        return str(self._ref)

    def __repr__(self) -> str:
        return f"<Run {self._ref}>"

    def _repr_html_(self) -> str:
        """How it stands, and its curves so far."""
        return self._display.page()

    def _ipython_display_(self) -> None:
        """In a notebook, a run that goes on is drawn anew as it does; otherwise IPython asks for the HTML."""
        if not (in_notebook() and self._display.show()):
            raise NotImplementedError

    @cached_property
    def _display(self) -> Display:
        from echelon.observation.panel import Display

        return Display(self)

    @property
    def name(self) -> str:
        """The run's name."""
        return self._ref.name

    def status(self, *, progress: bool = True) -> Status:
        """How the run stands now; with `progress`, also how far its training has come, which is read from the
        last lines of its output.
        """
        try:
            record, status = read_standing(self._engine, self._ref)
        except RunDamaged as error:
            reason = f"{error.problem}; {error.hint}"
            return Status(name=self.name, uri=str(self._ref), state="damaged", reason=reason)
        if progress and status.started is not None:
            from echelon.observation.observing import progress_of

            with suppress(EchelonError):  # its output cannot be read, or may not: the rest is known
                return with_progress(status, progress_of(self._engine, record, status))
        return status

    def _look(self) -> Status:
        return read_standing(self._engine, self._ref)[1]

    @property
    def has_steps(self) -> bool:
        """Whether it is made of runs. Such a run is on this machine: no cluster is asked."""
        if self._engine.traits.remote:
            return False
        with suppress(EchelonError):  # whatever reads more of it raises that
            return self._engine.read(self._ref).job.program is not None
        return False

    def job(self) -> Job:
        """What the run was asked to do."""
        return self._engine.read(self._ref).job

    def plan(self) -> Plan | None:
        """What was decided for the run; None while it is queued."""
        return self._engine.read(self._ref).plan

    def code(self) -> ShippedCode | None:
        """The code that was shipped for the run; None if its script runs where it is."""
        shipping = self._engine.shipping
        return None if shipping is None else shipping.code(self._ref)

    def wait(
        self,
        timeout: float | str | None = None,
        *,
        check: bool = False,
        show: bool | None = None,
        take_over: bool = False,
        tell: Callable[[str], object] = lambda _trouble: None,
        collect: Callable[[], object] | None = None,
        watch: Callable[[Event], object] = lambda _: None,
    ) -> Status:
        """Wait for the end and return the status; RunTimedOut if it is later than `timeout` (90, "5m").

        The run goes on then. With `check` a run that did not succeed raises RunFailed. With `show` its lines
        are printed as they come; in a notebook they are, unless it is False or the run is over. A run that
        this machine submitted is looked after meanwhile, its output is saved among its results as it comes,
        and its results are fetched; one that another machine submitted, only with `take_over`. What
        keeps the output from being saved is told once, and whom a take-over waits for. Raises
        ResultsIncomplete if not all results could be fetched. `collect` is called instead of `self.collect`,
        by a command that shows it; `watch` gets each event.
        """
        check_argument("timeout", timeout, str | int | float | None, "give seconds, or a time such as '5m'")
        seconds = parse_duration("timeout", timeout) if isinstance(timeout, str) else timeout
        if show is None:
            show = in_notebook() and self._look().state not in FINAL
        tracking = self.tracking(tell, take_over=take_over)
        with (
            noted_if_left(self.name),
            self._shown() if show else nullcontext(),
            tracking or nullcontext(),
        ):
            until = None if seconds is None else time.monotonic() + seconds
            over = TakeOver(tell=tell, until=until) if take_over else None
            with tending(self._ref, self._engine, take_over=over, saving=Saving(tell=tell)) as tender:
                end: Event | None = None
                for event in self._engine.events(self._ref, follow=True, timeout=seconds):
                    if show:
                        tell_waiting(event)
                    watch(event)
                    if event.kind == "finished":
                        end = event
                        tender.finish(event, collect or self.collect)
            # What told the end may be gone by now, and a worker be on its way that was to replace it.
            status = fold(self._look(), [end] if end is not None else [])
            if status.state not in FINAL:
                raise no_end(status, seconds)
            if tracking is not None:
                tracking.end(status)
        if check and (failure := self._failure(status)) is not None:
            raise failure
        return status

    def _failure(self, status: Status) -> RunFailed | None:
        failure = failure_of(status)
        if failure is not None and (advice := self.advice(status)):
            failure.add_note(advice)
        return failure

    def advice(self, status: Status) -> str | None:
        """What to do about a run that failed because a file did not travel with its code, as far as the
        folder tells it from which the run was started: this process's, where that is not known.
        """
        return advice_on(status, self.uri, self.job)

    @contextmanager
    def _shown(self) -> Iterator[None]:
        def several_ranks() -> bool:
            plan = self.plan()
            return plan is None or rank_count(plan.world) > 1 or self.has_steps

        def lines() -> Iterator[LogLine]:
            if self.has_steps:
                return self.logs(follow=True)
            return whole_lines(self._engine.logs(self._ref, follow=True))

        curves = self._display.curves() if in_notebook() else nullcontext()
        with shown(lines, prefix=several_ranks), curves:
            yield

    def exception(self, timeout: float | str | None = None) -> RunFailed | None:
        """Wait for the end, and return why the run did not succeed; None if it did."""
        return self._failure(self.wait(timeout))

    def result(self, rank: int = 0, timeout: float | str | None = None) -> Any:
        """Wait for the end, and return what the run's function returned on one rank.

        Plain data comes back: numbers, texts, arrays, tensors and tables, in lists, tuples and dicts. Raises
        RunFailed if the run did not succeed, and CannotShip if the function returned something else."""
        check_argument("rank", rank, int, "give a number; run.results() has those of all ranks")
        status = self.wait(timeout, check=True)
        self.check_exists(rank)
        from echelon.observation.returned import read_returned

        return read_returned(self._engine, self._ref, status, rank)

    def results(self, timeout: float | str | None = None) -> list[Any]:
        """The same for all ranks, in their order; None for one that did not come to return, such as a
        parameter server."""
        from echelon.observation.returned import read_all_returned

        return read_all_returned(self._engine, self._ref, self.wait(timeout, check=True))

    def logs(
        self,
        *,
        rank: int | None = None,
        worker: int | None = None,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
    ) -> Iterator[LogLine]:
        """What the ranks wrote, line by line: of one rank or worker, the last `tail` lines, from the time
        `since` on. Of a run that was resumed, in all of its starts.

        With `follow` the lines come as they are written, until the run ends. Those of a run that is made of
        runs are those of its steps, one after the other, or, with `tail` or `follow`, by their time; `part`
        of each is its step.
        """
        check_argument("tail", tail, int | None, "give a number of lines: tail=10")
        if tail is not None and tail < 0:
            raise InvalidJob("tail", tail, "is less than zero", hint="give a number of lines: tail=10")
        check_argument(
            "since", since, int | float | None, "give a time as time.time() does: time.time() - 300"
        )
        from echelon.observation.lines import LineFilter, lines_from_last, lines_of

        self.check_exists(rank, worker)
        if self.has_steps:
            from echelon.observation import parts

            return parts.lines(
                self._engine, self._ref, rank=rank, worker=worker, follow=follow, tail=tail, since=since
            )
        wanted = LineFilter(rank=rank, worker=worker, since=since)
        if tail is not None:
            return lines_from_last(self._engine, self._ref, wanted, tail, follow=follow)
        return lines_of(self._engine, self._ref, wanted, follow=follow)

    def check_exists(self, rank: int | None, worker: int | None = None) -> None:
        """Raise InvalidJob if there is no such rank or worker: its output would never come."""
        check_exists(self._engine, self._ref, rank, worker)

    def raw_logs(
        self, saving: Saving | None = None, *, earlier: bool = False
    ) -> Iterator[LogLine | LogBlock]:
        """Every piece of output as it comes, until the end: for a terminal that shows half a line too, and
        many lines in one write. With `saving`, it is saved among the results too, however slowly it is taken
        here; with `earlier`, what was written before the run was resumed comes first. Of a run that is made
        of runs it is what its steps write, in whole lines, which its executor saves.
        """
        if self.has_steps:
            from echelon.observation import parts

            return parts.pieces(self._engine, self._ref, earlier=earlier)
        pieces = self._engine.output(self._ref, saving=saving)
        return chain(self._engine.earlier_output(self._ref), pieces) if earlier else pieces

    def later_starts(self) -> list[Start]:
        """When it was restarted or resumed, and why; of all of its starts, as far as that was kept. Of a run
        that is made of runs, also when its steps were.
        """
        if self.has_steps:
            from echelon.observation import parts

            return parts.later_starts(self._engine, self._ref)
        from echelon.observation.standing import later_starts

        return later_starts(self._engine, self._ref)

    def events(self) -> Iterator[Event]:
        """What happens, as it happens, until the end."""
        return self._engine.events(self._ref, follow=True)

    def observe(
        self,
        *,
        follow: bool = False,
        events: bool = True,
        metrics: bool = True,
        pattern: str | Sequence[str] | None = None,
    ) -> Iterator[Event | Metric]:
        """What happened and what was measured; with `follow`, as it comes, until the run has ended. A
        `pattern` replaces the one that the run was started with (`--metric-pattern`). Of a run that is made
        of runs, what happened to it, and what its steps have measured: `part` is the step.
        """
        if self.has_steps:
            from echelon.observation.parts import observe
        else:
            from echelon.observation.observing import observe

        patterns = (pattern,) if isinstance(pattern, str) else pattern
        hint = "give a regular expression, or a list of them"
        check_argument("pattern", patterns, Sequence | None, hint)
        for each in patterns or ():
            check_argument("pattern", each, str, hint)
        return observe(
            self._engine, self._ref, follow=follow, events=events, metrics=metrics, patterns=patterns
        )

    def metrics(
        self, name: str | None = None, *, rank: int | None = None, pattern: str | Sequence[str] | None = None
    ) -> dict[str, list[Any]]:
        """What the ranks have printed of metrics so far, and written for TensorBoard, as columns: time, rank,
        step, epoch, name, value, source. `pandas.DataFrame(run.metrics("loss"))` is a table of one metric.
        Of a run that is made of runs there is one more, part: the step.
        """
        from echelon.model.output.metric import COLUMNS, Metric, as_row

        self.check_exists(rank)
        found = [
            each
            for each in self.observe(events=False, pattern=pattern)
            if isinstance(each, Metric)
            and (name is None or each.name == name)
            and (rank is None or each.rank == rank)
        ]
        rows = [as_row(each) for each in found]
        columns = {column: [row[at] for row in rows] for at, column in enumerate(COLUMNS)}
        return {"part": [each.part for each in found], **columns} if self.has_steps else columns

    def why(self) -> tuple[Reason, ...]:
        """What is going on with it, what costs most first: whether it is stuck, who keeps the others waiting,
        what it waits for, or why it ended. Of a run that is made of runs, also with the steps that go on or
        have failed; `part` is the step.
        """
        from dataclasses import replace

        from echelon.model.program import DONE
        from echelon.observation.reasons import arranged, look

        status = self.status()
        found = list(look(self._engine, self._ref, status, self.advice(status)))
        states = {step.name: step.state for step in status.steps}
        for name, step in self.steps().items() if states else ():
            if states.get(name) not in (*DONE, "stopped"):
                with suppress(UnknownRun):  # it was removed
                    found += [replace(each, part=name) for each in step.why()]
        return arranged(found)

    def usage(self) -> RunUsage:
        """What its workers use now, as their agents measure it every few seconds: cores, memory and GPUs, of
        each worker and rank.
        """
        from echelon.engines.abilities import required
        from echelon.model.engine.usage import usage_of

        sampling = required(self._engine.sampling, "samples of what runs use", self._engine.traits)
        return usage_of(self.status(progress=False), sampling.newest(self._ref))

    def live_usage(self) -> LiveUsage:
        """The same inside of a context, kept up to date: `now()` has it at any moment."""
        from echelon.engines.abilities import required
        from echelon.observation.sampling import LiveUsage

        required(self._engine.sampling, "samples of what runs use", self._engine.traits)
        return LiveUsage(self._engine, self._ref)

    def samples(self) -> NewestSamples:
        """The newest sample of each worker inside of a context, for one who knows the rest of the run."""
        from echelon.observation.sampling import NewestSamples

        return NewestSamples(self._engine, self._ref)

    def tending(
        self, *, take_over: bool = False, saving: Saving | None = None
    ) -> AbstractContextManager[Tending]:
        """Look after the run inside this context: try to admit it while it is queued, do the upkeep that it
        needs from outside and, with `saving`, save its output. Everything that only looks changes nothing.
        """
        over = TakeOver() if take_over else None
        return tending(self._ref, self._engine, take_over=over, saving=saving)

    def tracking(
        self, tell: Callable[[str], object] = lambda _: None, *, take_over: bool = False
    ) -> Stays | None:
        """A context that forwards the metrics, as they come, to the tracker that the run was started with;
        None if there is none.
        """
        with suppress(EchelonError):  # what follows the run raises that, too
            record = self._engine.read(self._ref)
            if record.job.tracking is None:
                return None
            from echelon.tracking.following import Stays

            source = partial(self.observe, follow=True, events=False)
            return Stays(self._engine, record, source, tell, take_over=take_over)
        return None

    def track(self, tracker: str, *, tell: Callable[[str], object] = lambda _: None) -> None:
        """Send the metrics that the run has so far to a tracker, "mlflow" or "tensorboard": those that are
        not there yet. Raises Unavailable if not all of them could be sent.
        """
        from echelon.model.tracking import parse_tracker
        from echelon.tracking.following import Following

        found = parse_tracker(tracker)
        if found is None:
            raise InvalidJob("track", tracker, "names no tracker")
        source = partial(self.observe, events=False)
        with Following(self._engine, self._ref, found, source, tell) as following:
            following.begin()
            status = self.status(progress=False)
            following.finish_all(status if status.state in FINAL else None)

    def collect(
        self,
        progress: Callable[[int, int], object] | None = None,
        notice: Callable[[LeftOut], object] = lambda _: None,
    ) -> Sequence[LeftOut]:
        """Bring the results of a run that has ended to where they belong, and let its workers go; returns
        what cannot be copied. Raises ResultsIncomplete, and the workers stay, if not all of them came.
        `notice` gets what cannot be copied in both cases.

        Results belong to the machine that submitted the run: on another one it does nothing."""
        try:
            found = self._engine.collect(self._ref, progress)
        except ResultsIncomplete as error:
            for each in error.left_out:
                notice(each)
            raise
        for each in found:
            notice(each)
        return found

    def get(
        self,
        path: str | Path = ".",
        to: Path | str | None = None,
        *,
        notice: Callable[[LeftOut], object] = lambda _: None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> Path:
        """Bring a file or folder of the results (all of them by default) to the folder `to`; returns its
        path. The run's workers keep them.

        Without `to` it comes to where this run's results belong; what is there already stays as it is. On
        the machine that submitted the run, once that is over, all of them are collected then. `notice` gets
        what cannot be copied, `tell` what is waited for.
        """
        path, to = checked_path("path", path), None if to is None else checked_path("to", to)
        if to is None:
            self._bring_home(notice)
        record = self._engine.read(self._ref)
        target = Path(to) if to is not None else Path(record.results) / Path(path).parent
        return self._engine.fetch(self._ref, path, target, notice, tell)

    def get_matching(
        self,
        pattern: str,
        to: Path | str | None = None,
        *,
        notice: Callable[[LeftOut], object] = lambda _: None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> list[Path]:
        """As `get`, for every file and folder that a pattern names: `ckpt/*.pt`, `**/best.pt`. Below `to`
        they are as below the folder that the pattern begins with.
        """
        import tempfile

        from echelon.engines.results import copy_matching, fixed_part

        to = None if to is None else Path(checked_path("to", to))
        if to is None:
            self._bring_home(notice)
        record = self._engine.read(self._ref)
        home = Path(record.results)
        if not self._engine.traits.remote and home.is_dir():
            private = record.job.program.private if record.job.program is not None else ()
            return copy_matching(home, pattern, to, leave_out=private, notice=notice)
        with tempfile.TemporaryDirectory(prefix="echelon-") as folder:
            fixed = fixed_part(pattern)
            place = Path(folder, fixed).parent if fixed.parts else Path(folder)
            self._engine.fetch(self._ref, str(fixed), place, notice, tell)
            return copy_matching(Path(folder), pattern, to or home / fixed, notice=notice)

    def _bring_home(self, notice: Callable[[LeftOut], object]) -> None:
        """Collect the results, and those of the steps: who does that may have been killed before."""
        self.collect(notice=notice)
        for step in self.steps().values():
            with suppress(UnknownRun):  # it was removed
                step.collect(notice=notice)

    def steps(self) -> dict[str, Run]:
        """The runs of a notebook's steps, by the names of the steps, for those that have one."""
        found = self._read_parent()
        if found is None:
            return {}
        from echelon.observation.step_runs import StepRuns

        record, status = found
        runs = StepRuns(self._engine, record).of(status.steps)
        return {name: Run(ref, engine) for name, (ref, engine) in runs.items()}

    def left_running(self) -> list[Run]:
        """The runs of its steps that go on although it is over itself, since its executor was killed."""
        found = self._read_parent()
        if found is None:
            return []
        from echelon.steps import left_running

        return [Run(ref, engine) for ref, engine in left_running(self._engine, *found)]

    def _read_parent(self) -> tuple[Record, Status] | None:
        """How it stands, if it is made of runs: those are on this machine."""
        with suppress(RunDamaged):
            return read_standing(self._engine, self._ref) if self.has_steps else None
        return None

    def stop(
        self,
        *,
        now: bool = False,
        signal: StopSignal = "SIGTERM",
        grace: float | str | None = None,
        wait: bool = True,
    ) -> str | None:
        """End the run: SIGTERM to the ranks and, `grace` later (90, "5m"; what the run was started with, ten
        seconds if nothing else was said), SIGKILL; `now` kills at once. With the signal SIGINT it begins as
        Ctrl-C does, and SIGTERM follows after the same time.

        Of a run that is made of runs no further step starts, and those that run are stopped so; also where
        it is over itself, and they go on.

        Returns when it has ended; without `wait`, at once, unless the run is damaged and goes on: its end can
        not be read later. What it returns is a note for the user, where the ranks cannot be stopped as asked.
        """
        if signal not in stopping.SIGNALS:
            raise InvalidJob(
                "signal", signal, "ends no run", hint=f"use one of {', '.join(stopping.SIGNALS)}"
            )
        if now and grace is not None:
            raise InvalidJob("grace", grace, "gives time, and now=True none", hint="leave out one of them")
        seconds = None if grace is None else parse_duration("grace", grace)
        left = self.left_running()
        notes = [self._engine.stop(self._ref, signal="SIGKILL" if now else signal, grace=seconds)]
        notes += [run.stop(now=now, signal=signal, grace=grace, wait=False) for run in left]
        for run in (self, *left) if wait else ():
            # It has ended; `wait` and `get` tell what is missing.
            with suppress(ResultsIncomplete, RunDamaged):
                run.wait(run.stop_patience(seconds), show=False)
        return "; ".join(filter(None, notes)) or None

    def stop_patience(self, grace: float | None = None) -> float:
        """The seconds within which the run ends after a stop, if nothing is wrong."""
        if grace is None:
            with suppress(EchelonError):  # one that cannot be read is stopped all the same
                grace = grace_in_pods(self._engine.read(self._ref).job)
        return STOP_PATIENCE + 2 * max(0.0, (grace or 0.0) - GRACE)

    def resumable(self, job: Job) -> bool:
        """Whether a run of this job could be resumed where it is, should it not succeed."""
        return not self._engine.traits.remote or job.pod.output is not None or keeps_checkpoints(job.pod)

    def resume(
        self,
        *,
        no_wait: bool = False,
        stays: bool = False,
        sending: CopyWatch | None = None,
        fetching: Callable[[int, int], object] | None = None,
    ) -> Run:
        """Start the run again, if it failed, was stopped or lost: the same job in the same results, where the
        script finds its checkpoint. ECHELON_RESTART counts on. Returns at once, as `echelon.run` does; with
        `stays` the caller follows it, and admits it while it is queued. Code that is sent to the first
        worker, and the safe checkpoints of a run whose keeper has them (`--checkpoints`), are sent before,
        unless the caller `stays`; `sending` is told of that. Such a run's results are fetched first, if they
        were not; `fetching` is told of that.
        """
        from echelon.resuming import resume

        status = self.status(progress=False)
        resume(self._ref, self._engine, status, no_wait=no_wait, stays=stays, fetching=fetching)
        if not stays and self._engine.delivery is not None and self._engine.delivery.is_due(self._ref):
            self.send_what_it_awaits(sending)
        return self

    def deliver(self, watch: CopyWatch) -> None:
        """Send what the run waits for, if it is one that does, code or checkpoints: its first worker has
        started.
        """
        if self._engine.delivery is not None:
            self._engine.delivery.deliver(self._ref, watch)

    def send_what_it_awaits(self, watch: CopyWatch | None = None) -> None:
        """Wait for the first worker, and send the code or the checkpoints that the run waits for; raises
        RunFailed if the run ends before all of it is there. For a caller that does not follow the run.
        """
        watch = watch or _Quiet()
        watch.notice(f"what run {self.name} waits for is sent when its first worker has started")
        for event in self._engine.events(self._ref, follow=True):
            if event.kind == "worker-started" and event.worker == 0:
                self.deliver(watch)
                break
            if event.kind == "waiting" and event.reason:
                watch.notice(event.reason)
        status = self._look()
        if status.state in FINAL and (failure := self._failure(status)) is not None:
            raise failure

    @property
    def uri(self) -> str:
        """Its address, as commands take it."""
        return str(self._ref)

    @property
    def foreign(self) -> bool:
        """Whether it is a job that echelon only looks at."""
        return self._engine.traits.foreign

    def remove(self, tell: Callable[[str], object] = lambda _: None, *, force: bool = False) -> Sequence[str]:
        """Forget the run, which must have ended; its name is free again, its results stay. Returns the
        volumes on which there are some, as pvc:NAME/path. `tell` gets a line on what has the run's name and
        was left, since it is not the run's own. Results that were not fetched, and would be lost with it,
        keep it from being removed, unless `force` is given. With a run that is made of runs go those of its
        steps and the volume that was made for it.
        """
        found = self._read_parent()
        if found is not None:
            from echelon.steps import remove

            return remove(self._ref, self._engine, *found, tell, force=force)
        return self._engine.remove(self._ref, tell, force=force)


class _Quiet:
    """Shows nothing of a copy."""

    def update(self, now: object) -> None:
        """How far it is."""

    def notice(self, text: str) -> None:
        """What it waits for."""
