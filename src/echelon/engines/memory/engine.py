"""A scripted engine without processes or files, for tests and documentation: runs do what a script says.

A script tells what each rank does, by the name of what the job runs::

    def flaky(rank: int, restart: int) -> Act:
        return Act(error="ValueError: bad luck", exit_code=3) if (rank, restart) == (1, 0) else Act()


    engine = MemoryEngine({"hello.py": Act(lines=("hello",)), "flaky.py": flaky}, cluster=one_node(gpus=2))

All that a run does happens inside `start`: it is over when that returns, unless a rank lasts until it is
stopped. The clock is the engine's own, a millisecond for each thing that happens. In everything else it keeps
the protocol exactly, as the conformance suite in the tests shows.
"""

from __future__ import annotations

import os
import posixpath
import shlex
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from echelon.bundle import Bundle
from echelon.engines.abilities import Sampling
from echelon.engines.base import Saving, Taken, TakeOver, run_exists, stopped_by, unknown_run
from echelon.engines.job_secrets import read_secrets
from echelon.engines.memory.run import ScriptedRun
from echelon.engines.memory.sampling import ScriptedSampling
from echelon.engines.memory.script import Act, Happening, Program, interrupt, one_node, perform, sample
from echelon.engines.reservation import Owner, in_use
from echelon.errors import InvalidJob, StateTrouble
from echelon.model import ends
from echelon.model.copy import LeftOut
from echelon.model.engine.cluster import Cluster
from echelon.model.engine.sample import Samples
from echelon.model.engine.traits import Traits, Where
from echelon.model.event import Event, Kind
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.model.plan import Plan
from echelon.model.run import Record, RunRef, StopSignal
from echelon.model.status import RunSummary
from echelon.model.world import members

T = TypeVar("T", Event, LogLine)


class MemoryEngine:
    """Runs that are played from a script.

    `admit` (`echelon.admission.admit`) is called for the queued runs whenever a run has ended; without it
    that is up to the caller. `results` are all result files ever written, by folder and by path in it.
    """

    where = Where()
    traits = Traits(place="the memory engine")
    shell = ports = delivery = volumes = checkup = usage = manifests = queueing = None
    notebooks = programs = shipping = None

    def __init__(
        self,
        programs: Mapping[str, Program] | None = None,
        *,
        cluster: Cluster | None = None,
        admit: Callable[[RunRef, MemoryEngine], object] | None = None,
    ) -> None:
        self.results: dict[str, dict[str, bytes]] = {}
        self._programs = dict(programs or {})
        self._cluster = cluster or one_node()
        self._admit = admit
        self._serving = False
        self._runs: dict[str, ScriptedRun] = {}
        self._clock = time.time()
        self._changed = threading.Condition()  # one thread of the caller's may follow what another one stops

    @property
    def sampling(self) -> Sampling:
        """What scripted ranks use."""
        return ScriptedSampling(self)

    def sample(self, ref: RunRef) -> Samples:
        """What the ranks of a run use that last."""
        with self._changed:
            run = self._find(ref)
            plan = run.record.plan
            if plan is None or run.ended:
                return Samples()
            restart = max((event.restart or 0 for event in run.events), default=0)
            return sample(self._program(run), plan, restart, self._clock)

    def platforms(self) -> None:
        """Nothing: no program runs."""

    def cluster(self, *, gpus: bool = True, job: Job | None = None) -> Cluster:  # noqa: ARG002 - all fits all
        """The cluster it was made with, less what unfinished runs hold."""
        nodes = {node.name: node if gpus else replace(node, gpus=()) for node in self._cluster.nodes}
        for name, run in list(self._runs.items()):
            plan = run.record.plan
            if plan is None or run.ended:
                continue
            for member, seat in zip(members(plan.world), plan.placement.seats, strict=True):
                node, need = nodes[seat.node], plan.world.groups[member.group].resources
                nodes[seat.node] = replace(
                    node,
                    free_cpus=node.free_cpus - (need.cpus.request if need.cpus else 0),
                    free_memory=node.free_memory - (need.memory.request if need.memory else 0),
                    gpus=tuple(replace(g, holder=name) if g.id in seat.gpus else g for g in node.gpus),
                )
        waiting = tuple(run.record.ref.name for run in self._queued() if run.summary().gpus)
        return Cluster(nodes=tuple(nodes.values()), waiting=waiting)

    def adds_nodes(self) -> bool:
        """Its nodes are what it was made with."""
        return False

    def record(self, job: Job, bundle: Bundle | None, held: Plan | None = None) -> RunRef:
        """Write the run down."""
        del bundle, held  # no code runs here, and workers are not objects
        read_secrets(job, os.environ)
        ref, results = RunRef(engine="memory", name=job.name), job.results or f"runs/{job.name}"
        with self._changed:
            known = self._runs.get(job.name)
            if known is not None and known.untouched and known.record.job == job:
                if not known.ended:
                    return ref
                del self._runs[job.name]  # stopped before it began: it begins again
            if job.name in self._runs:
                raise run_exists(job.name, resume=job.resume)
            for other in self._runs.values():
                if other.record.results == results and not other.ended:
                    owner = Owner(run=str(other.record.ref), created=other.record.created)
                    raise in_use(Path(results), owner)
            if self.results.get(results) and not job.resume:
                hint = "--reuse-results goes on in it; --results chooses another"
                raise StateTrouble(f"the results folder {results} is not empty", hint=hint)
            run = ScriptedRun(Record(ref=ref, job=job, created=self._now(), owner="nobody", results=results))
            self._runs[job.name] = run
            self._tell(run, "recorded")
        return ref

    def reopen(self, ref: RunRef, job: Job, held: Plan | None = None) -> None:
        """Set aside how the run went."""
        del held
        with self._changed:
            run = self._find(ref)
            if not run.ended and [event.kind for event in run.events] == ["recorded"]:
                return
            if not run.ended:
                raise StateTrouble(f"run {ref.name!r} has not ended", hint=f"`echelon stop {ref.name}` first")
            record = replace(run.record, job=job, created=self._now(), plan=None)
            again = ScriptedRun(record, earlier=(*run.earlier, run))
            self._runs[ref.name] = again
            self._tell(again, "recorded")

    def read(self, ref: RunRef) -> Record:
        """What was recorded."""
        return self._find(ref).record

    def queue(self, ref: RunRef, reason: str) -> None:
        """Leave the run queued."""
        with self._changed:
            run = self._find(ref)
            told = [event.reason for event in run.events if event.kind == "queued"]
            if run.record.plan is None and not run.ended and told[-1:] != [reason]:
                self._tell(run, "queued", reason=reason)

    def start(self, ref: RunRef, plan: Plan) -> None:
        """Take what the plan names, and play the run as far as it goes by itself."""
        with self._changed:
            run = self._find(ref)
            if run.record.plan is not None or run.ended:
                return
            wanted = {(seat.node, gpu) for seat in plan.placement.seats for gpu in seat.gpus}
            for node in self.cluster().nodes:
                for gpu in node.gpus:
                    if gpu.holder is not None and (node.name, gpu.id) in wanted:
                        raise Taken(gpu.holder)
            run.record = replace(run.record, plan=plan)
            self._tell(run, "admitted")
            self._play(run, plan)

    def check(self, job: Job, coming: Collection[tuple[str, str]] = ()) -> None:
        """Nothing is named that could be missing."""

    def notes(self, job: Job) -> Sequence[str]:  # noqa: ARG002
        """Nothing: nothing runs."""
        return ()

    def preview(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:  # noqa: ARG002
        """The plan, for a person to read."""
        commands = [shlex.join(launch.argv) for launch in plan.launches]
        return "\n".join([f"run {job.name} in memory, framework {job.framework}", *commands]) + "\n"

    def objects(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:  # noqa: ARG002
        """Nothing: a run here is no object of another system."""
        return ""

    def events(self, ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """What happened."""
        run = self._find(ref)
        return self._read_on(run, run.events, follow, timeout)

    def logs(
        self,
        ref: RunRef,
        *,
        ranks: frozenset[int] | None = None,
        follow: bool = False,
        saving: Saving | None = None,  # noqa: ARG002 - the workers write to the results themselves
    ) -> Iterator[LogLine]:
        """What the ranks wrote."""
        run = self._find(ref)
        lines = self._read_on(run, run.lines, follow)
        return (line for line in lines if ranks is None or line.rank in ranks)

    def output(self, ref: RunRef, *, follow: bool = True, saving: Saving | None = None) -> Iterator[LogLine]:
        """What the ranks write."""
        return self.logs(ref, follow=follow, saving=saving)

    def earlier_output(self, ref: RunRef) -> Iterator[LogLine]:
        """What the ranks wrote before the run was resumed."""
        return (line for start in self._find(ref).earlier for line in start.lines)

    def earlier_events(self, ref: RunRef) -> Iterator[Event]:
        """What had happened before that."""
        return (event for start in self._find(ref).earlier for event in start.events)

    def recent(self, ref: RunRef, worker: int) -> Iterator[LogLine]:
        """What a worker's ranks wrote."""
        return (line for line in self.logs(ref) if line.worker == worker)

    def fetch(
        self,
        ref: RunRef,
        path: str,
        to: Path,
        notice: Callable[[LeftOut], object] = lambda _: None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> Path:
        """Write results into a folder that is really there."""
        del notice, tell
        results = self.read(ref).results
        inside = PurePosixPath(posixpath.normpath(path))
        if inside.is_absolute() or ".." in inside.parts:
            raise InvalidJob("path", path, "is outside the results", hint=f"name a file below {results}")
        files = {PurePosixPath(name): content for name, content in self.results.get(results, {}).items()}
        wanted = {name: content for name, content in files.items() if name.is_relative_to(inside)}
        if not wanted and inside.parts:
            raise InvalidJob("path", path, "is not among the results", hint=f"look into {results}")
        target = to / inside.name
        for name, content in wanted.items():
            file = target / name.relative_to(inside)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return target

    def seals(self, ref: RunRef) -> None:
        """Nothing: no program runs."""

    def collect(self, ref: RunRef, progress: Callable[[int, int], object] | None = None) -> Sequence[LeftOut]:
        """Nothing: results are where they belong."""
        del ref, progress
        return ()

    def tender(self, ref: RunRef, *, take_over: TakeOver | None = None) -> None:
        """Nothing: runs here are looked after."""

    def stop(self, ref: RunRef, *, signal: StopSignal = "SIGTERM", grace: float | None = None) -> None:  # noqa: ARG002
        """End the run here: no rank can refuse. One that is interrupted may have something to say."""
        with self._changed:
            run = self._find(ref)
            reason = stopped_by(signal)
            if run.record.plan is not None and not run.ended:
                self._tell(run, "stopping", reason=reason)
                if signal == "SIGINT":
                    self._note(run, interrupt(self._program(run), run.record.plan, self._now))
            if not run.ended:
                run.events.append(ends.stopped(reason, at=self._now()))
                self._changed.notify_all()
                self._serve_queue()

    def remove(
        self,
        ref: RunRef,
        tell: Callable[[str], object] = lambda _: None,  # noqa: ARG002
        *,
        force: bool = False,  # noqa: ARG002 - no results are lost, and no run is damaged
    ) -> Sequence[str]:
        """Forget the run."""
        with self._changed:
            run = self._find(ref)
            if not run.ended and not run.untouched:
                raise StateTrouble(f"run {ref.name!r} has not ended", hint=f"`echelon stop {ref.name}` first")
            del self._runs[ref.name]
            self._changed.notify_all()
        return ()

    def names(self) -> Sequence[str]:
        """The names of all runs."""
        return list(self._runs)

    def runs(self) -> Sequence[RunSummary]:
        """Every run."""
        return [run.summary() for run in reversed(list(self._runs.values()))]

    # Playing

    def _play(self, run: ScriptedRun, plan: Plan) -> None:
        """Let the script run as far as it goes by itself."""
        self._note(run, perform(self._program(run), run.record.job, plan, self._now))
        self._changed.notify_all()
        if run.ended:
            self._serve_queue()

    def _program(self, run: ScriptedRun) -> Program:
        job = run.record.job
        what = job.script or job.module or job.command[0]
        missing = Act(error=f"cannot start {what}: no script tells what it does", exit_code=127)
        return self._programs.get(what) or self._programs.get(PurePosixPath(what).name) or missing

    def _note(self, run: ScriptedRun, happenings: Iterable[Happening]) -> None:
        run.note(happenings, self.results.setdefault(run.record.results, {}))

    def _serve_queue(self) -> None:
        """Admit the queued runs that fit now, by priority, then age."""
        if self._admit is None or self._serving:
            return
        self._serving = True  # a run that is admitted may end at once, and so on
        try:
            before: list[ScriptedRun] = []
            while (waiting := self._queued()) != before:
                before = waiting
                for run in waiting:
                    self._admit(run.record.ref, self)
        finally:
            self._serving = False

    def _queued(self) -> list[ScriptedRun]:
        runs = list(self._runs.values())
        waiting = [run for run in runs if run.record.plan is None and not run.untouched and not run.ended]
        return sorted(waiting, key=lambda run: -run.record.job.priority)

    # Telling

    def _find(self, ref: RunRef) -> ScriptedRun:
        if ref.name not in self._runs:
            raise unknown_run(ref.name, self.names)
        return self._runs[ref.name]

    def _now(self) -> float:
        self._clock = round(self._clock + 0.001, 3)
        return self._clock

    def _tell(self, run: ScriptedRun, kind: Kind, **more: Any) -> None:
        run.events.append(Event(kind=kind, at=self._now(), **more))
        self._changed.notify_all()

    def _read_on(
        self, run: ScriptedRun, items: list[T], follow: bool, timeout: float | None = None
    ) -> Iterator[T]:
        """Yield what is there and, with `follow`, what comes, until the run is over or the time is up."""
        deadline = None if timeout is None else time.monotonic() + timeout
        told: int = 0

        def is_over() -> bool:
            return run.ended or run not in self._runs.values()

        while True:
            with self._changed:
                if follow:
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    self._changed.wait_for(lambda: len(items) > told or is_over(), left)  # noqa: B023 - used up at once
                fresh = items[told:]
                told += len(fresh)
                last = not follow or not fresh or is_over()
            yield from fresh
            if last:
                return
