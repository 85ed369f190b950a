"""The local engine: runs on this machine, each with a supervisor process of its own.

This half lives in the client (the command line, a notebook, the supervisor itself) and touches nothing but
the run's folder: a run goes on when its client has ended, and any process can follow or stop it. What starts,
follows and ends runs is imported where it is used, so that a list is there sooner."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.engines.base import RunDamaged, Taken, current_user, run_exists
from echelon.engines.local.folder import rundir, store
from echelon.engines.local.folder.events import EventFile, read_events
from echelon.engines.local.folder.store import RunStore
from echelon.engines.local.supervision import end_of, never_ran, nothing_comes, settle, spawn_supervisor
from echelon.errors import StateTrouble
from echelon.model.engine.traits import Traits, Where
from echelon.model.event import Event
from echelon.model.run import Record, RunRef, opening_status, summarise
from echelon.model.status import FINAL, RunSummary, fold

if TYPE_CHECKING:
    from echelon.bundle import Bundle
    from echelon.engines.base import Saving, TakeOver
    from echelon.engines.local.checkup import LocalCheckup
    from echelon.engines.local.folder.rundir import RunDir
    from echelon.engines.local.programs import LocalPrograms
    from echelon.engines.local.samples import LocalSampling
    from echelon.engines.local.shell import LocalShell
    from echelon.engines.local.shipping import LocalShipping
    from echelon.engines.local.usage import LocalMeter
    from echelon.engines.reservation import Hold, Owner
    from echelon.model.copy import LeftOut
    from echelon.model.engine.cluster import Cluster
    from echelon.model.job import Job
    from echelon.model.output.log import LogBlock, LogLine
    from echelon.model.plan import Plan
    from echelon.model.run import StopSignal

_COMPACTION = 60.0  # seconds that a supervisor may take to its end if much output is to be compressed
POLL = 0.03  # seconds between two looks at a run's files while following it


class LocalEngine:
    """Runs on this machine."""

    where = Where()
    traits = Traits(place="this machine", elastic=True)  # a queued run has a supervisor, which retries
    ports = delivery = volumes = manifests = queueing = notebooks = None

    def __init__(
        self, home: Path | None = None, *, keep_stdin: bool = False, terminal: int | None = None
    ) -> None:
        """Without `home`, the state folder is the user's; `keep_stdin` lets a single rank read our stdin,
        `terminal` (a socket, see `agent/ranks/frames.py`) gives it a terminal.
        """
        self.store = RunStore(home)
        self._keep_stdin = keep_stdin
        self._terminal = terminal
        self._over: dict[str, tuple[store.Stamps, RunSummary]] = {}  # rows of runs that are over
        self._reserved: dict[str, Hold] = {}  # results folders of runs that were recorded and not started

    @property
    def shell(self) -> LocalShell:
        """Commands in the place of a rank."""
        from echelon.engines.local.shell import LocalShell

        return LocalShell(self.store)

    @property
    def programs(self) -> LocalPrograms:
        """Runs that are made of runs."""
        from echelon.engines.local.programs import LocalPrograms

        return LocalPrograms(self.store)

    @property
    def shipping(self) -> LocalShipping:
        """What was shipped for runs."""
        from echelon.engines.local.shipping import LocalShipping

        return LocalShipping(self.store)

    @property
    def checkup(self) -> LocalCheckup:
        """What this machine has for runs."""
        from echelon.engines.local.checkup import LocalCheckup

        return LocalCheckup()

    @property
    def usage(self) -> LocalMeter:
        """Who uses this machine."""
        from echelon.engines.local.usage import LocalMeter

        return LocalMeter(self)

    @property
    def sampling(self) -> LocalSampling:
        """What the ranks of a run use."""
        from echelon.engines.local.samples import LocalSampling

        return LocalSampling(self.store)

    def names(self) -> Sequence[str]:
        """The names of all runs."""
        return self.store.names()

    def platforms(self) -> None:
        """Nothing: workers are processes of this machine."""

    def cluster(self, *, gpus: bool = True, job: Job | None = None) -> Cluster:
        """This machine as one node; without `gpus` nvidia-smi need not be called. For a job that asks for
        nothing the other runs are not looked at: there may be hundreds.
        """
        from echelon.engines.local import capacity
        from echelon.model.job import asks_for_any

        counts = gpus or job is None or asks_for_any(job)
        return capacity.read_cluster(self.store if counts else None, gpus=gpus)

    def adds_nodes(self) -> bool:
        """A machine stays as it is."""
        return False

    def record(self, job: Job, bundle: Bundle | None, held: Plan | None = None) -> RunRef:  # noqa: ARG002
        """Make the run's folder."""
        import uuid

        from echelon.engines.job_secrets import read_secrets
        from echelon.engines.results import results_folder

        read_secrets(job, os.environ)  # what is missing is reported now, not when the workers start
        ref = RunRef(engine="local", name=job.name)
        folder = self.store.dir(job.name)
        if never_ran(folder) and folder.record.exists() and (known := store.read_record(folder)).job == job:
            if not folder.final.exists() and _digest(folder) == (bundle.digest if bundle else None):
                self._reserve(known)
                return ref
            # Its code has changed since, or it was interrupted at the worst moment: begin again.
            self.store.delete(job.name)
        if folder.record.exists():
            raise run_exists(job.name, resume=job.resume)
        results = results_folder(job)
        record = Record(ref=ref, job=job, created=rundir.now(), owner=current_user(), results=str(results))
        self._reserve(record, resume=job.resume)
        try:
            self.store.create(
                record, secret=uuid.uuid4().hex + uuid.uuid4().hex, bundle=bundle.data if bundle else None
            )
        except BaseException:
            self._release(record)
            raise
        return ref

    def reopen(self, ref: RunRef, job: Job, held: Plan | None = None) -> None:  # noqa: ARG002
        """Forget how the run went, once its supervisor has ended."""
        from echelon.engines.job_secrets import read_secrets
        from echelon.engines.local import ending
        from echelon.engines.local.reopening import reopen

        read_secrets(job, os.environ)
        folder = self.store.find(ref.name)
        if [event.kind for event in self.events(ref)] == ["recorded"]:
            return
        settle(folder)
        if folder.final.exists():
            ending.await_supervisor(folder, _COMPACTION)
        with store.translated(folder.path), rundir.hold(folder) as lock:
            if lock is None or not folder.final.exists():
                raise StateTrouble(f"run {ref.name!r} has not ended", hint=f"`echelon stop {ref.name}` first")
            again = replace(store.read_record(folder), job=job, created=rundir.now(), plan=None)
            self._reserve(again)
            reopen(folder, again)

    def _reserve(self, record: Record, *, resume: bool = True) -> Hold:
        """Reserve a run's results folder until its supervisor, which inherits the reservation, has ended."""
        from echelon.engines.results import reserve_results

        name = record.ref.name
        if name not in self._reserved:
            owner = self._as_owner(record)
            self._reserved[name] = reserve_results(Path(record.results), owner, resume=resume)
        return self._reserved[name]

    def _release(self, record: Record) -> None:
        """The run is removed, or was never made."""
        from echelon.engines import reservation

        if (held := self._reserved.pop(record.ref.name, None)) is not None:
            held.close()
        reservation.forget(Path(record.results), self._as_owner(record))

    def _as_owner(self, record: Record) -> Owner:
        from echelon.engines.reservation import Owner

        return Owner(run=str(record.ref), created=record.created, state=str(self.store.home))

    def read(self, ref: RunRef) -> Record:
        """What was recorded."""
        return self.store.read(ref.name)

    def queue(self, ref: RunRef, reason: str) -> None:
        """Leave the run with a supervisor that tries again."""
        from echelon.model.job import ranks_asked

        folder = self.store.find(ref.name)
        with store.translated(folder.path), rundir.hold(folder) as lock:
            if folder.final.exists():
                return
            told = None
            for event in read_events(folder):
                told = event.reason if event.kind == "queued" else told
            if told != reason:
                store.append_event(folder, Event(kind="queued", at=rundir.now(), reason=reason))
            if lock is not None:
                record = store.read_record(folder)
                self._spawn_supervisor(folder, record, lock, ranks_asked(record.job))

    def start(self, ref: RunRef, plan: Plan) -> None:
        """Take the plan's GPUs under the lock, and leave the run to its supervisor."""
        from echelon.engines.local import capacity
        from echelon.engines.local.task import write_task
        from echelon.model.world import rank_count

        folder = self.store.find(ref.name)
        wanted = {gpu for seat in plan.placement.seats for gpu in seat.gpus}
        # One lock within the other, since a plan holds its GPUs only while the run has a supervisor.
        with store.translated(folder.path), self.store.devices_locked(), rundir.hold(folder) as lock:
            if folder.final.exists() or (lock is None and folder.task.exists()):
                return
            held = capacity.settled_gpus(self.store, but=ref.name) if wanted else {}
            for gpu in wanted & held.keys():
                raise Taken(held[gpu])
            store.append_event(folder, Event(kind="admitted", at=rundir.now()))
            store.write_plan(folder, plan)
            record = store.read_record(folder)
            write_task(folder, record, plan)
            if lock is not None:
                self._spawn_supervisor(folder, record, lock, rank_count(plan.world))

    def _spawn_supervisor(self, folder: RunDir, record: Record, lock: int, ranks: int) -> None:
        """Only a single rank can read the caller's input: several would take it from each other."""
        from functools import partial

        from echelon.engines.terminal_size import size_for

        with self._reserve(record) as reserved:
            del self._reserved[record.ref.name]
            spawn = partial(spawn_supervisor, folder, lock, reserved.fileno())
            if ranks == 1:
                spawn(keep_stdin=self._keep_stdin, terminal=self._terminal)
            else:
                spawn(environment=size_for(ranks, os.environ) if self._keep_stdin else {})

    def check(self, job: Job, coming: Collection[tuple[str, str]] = ()) -> None:
        """Nothing is named that could be missing."""

    def notes(self, job: Job) -> Sequence[str]:
        """What a role asks of its pods has no effect here: ranks run as the user's own processes."""
        return tuple(
            f"role {role.name}: {field} has no effect on this machine"
            for role in job.roles
            for field in ("image", "template")
            if getattr(role, field)
        )

    def preview(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:  # noqa: ARG002
        """The plan, for a person to read."""
        from echelon.engines.local.preview import preview

        return preview(job, plan)

    def objects(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:  # noqa: ARG002
        """Nothing: a run here is no object of another system."""
        return ""

    def events(self, ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """Read the run's event file, and go on reading it."""
        self.store.read(ref.name)  # raises for a damaged run, which may never end
        folder = self.store.dir(ref.name)
        deadline = None if timeout is None else time.monotonic() + timeout
        file = EventFile(folder)
        ended = False
        while True:
            last_look = not follow or nothing_comes(folder)
            for event in file.read():
                ended = ended or event.kind == "finished"
                yield event
            if ended:
                return
            if last_look:
                # An end that is not among the events: the supervisor was killed, or the disk is full.
                final = end_of(folder)
                if final is not None:
                    yield final
                return
            if deadline is not None and time.monotonic() >= deadline:
                return
            time.sleep(POLL)

    def logs(
        self,
        ref: RunRef,
        *,
        ranks: frozenset[int] | None = None,
        follow: bool = False,
        saving: Saving | None = None,  # noqa: ARG002 - the workers write to the results themselves
    ) -> Iterator[LogLine]:
        """Read the agents' output files, and go on reading them."""
        from echelon.model.output.log import each_line

        for line in each_line(self.output(ref, follow=follow)):
            if ranks is None or line.rank in ranks:
                yield line

    def output(
        self, ref: RunRef, *, follow: bool = True, saving: Saving | None = None
    ) -> Iterator[LogLine | LogBlock]:
        """Read the agents' output files, many lines at a time."""
        from echelon.engines.local.folder.tail import follow_logs

        del saving  # the workers write to the results themselves
        folder = self.store.find(ref.name)
        return follow_logs(folder, lambda: not follow or nothing_comes(folder), POLL)

    def earlier_output(self, ref: RunRef) -> Iterator[LogLine | LogBlock]:
        """Read the agents' output files of earlier starts."""
        from echelon.engines.local.folder.tail import read_earlier

        return read_earlier(self.store.find(ref.name))

    def earlier_events(self, ref: RunRef) -> Iterator[Event]:
        """Read the event files of earlier starts."""
        for start in self.store.find(ref.name).earlier_starts():
            yield from read_events(start)

    def recent(self, ref: RunRef, worker: int) -> Iterator[LogLine]:
        """Read the end of an agent's output file; once the run is over, of the logs among the results."""
        from echelon.engines.local.folder.tail import recent_output
        from echelon.engines.results import recent_lines

        found = recent_output(self.store.find(ref.name), worker)
        if found is not None:
            return found
        record, final = self.read(ref), store.read_final(self.store.dir(ref.name))
        if final is not None and final.missing:
            return iter(())  # what is there last was not printed last
        ranks = [
            rank for each in opening_status(record).workers if each.worker == worker for rank in each.ranks
        ]
        return recent_lines(Path(record.results) / "logs", worker, ranks)

    def fetch(
        self,
        ref: RunRef,
        path: str,
        to: Path,
        notice: Callable[[LeftOut], object] = lambda _: None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> Path:
        """Copy from the results folder; what is there already is not copied onto itself."""
        from echelon.engines.results import copy_result

        del tell
        record = self.read(ref)
        private = record.job.program.private if record.job.program is not None else ()
        return copy_result(Path(record.results), path, to, leave_out=private, notice=notice)

    def seals(self, ref: RunRef) -> Path:
        """A folder within the run's own, which is its owner's alone."""
        return self.store.dir(ref.name).seals

    def collect(self, ref: RunRef, progress: Callable[[int, int], object] | None = None) -> Sequence[LeftOut]:
        """Ranks write to the results folder themselves; of a run that was lost, what is left is ended."""
        from echelon.engines.results import check_kept

        del progress
        folder = self.store.dir(ref.name)
        with contextlib.suppress(RunDamaged):  # who reads the run says so
            settle(folder)
            hint = "free some space, or choose another disk: --results, or ECHELON_HOME for the state"
            check_kept(ref.name, store.read_final(folder), hint)
        return ()

    def tender(self, ref: RunRef, *, take_over: TakeOver | None = None) -> None:
        """Nothing: runs here are looked after."""

    def stop(self, ref: RunRef, *, signal: StopSignal = "SIGTERM", grace: float | None = None) -> str | None:
        """Write a stop request for the supervisor; a run that never got one ends here."""
        from echelon.engines.local import ending

        return ending.stop(self.store.find(ref.name), signal, grace)

    def remove(
        self,
        ref: RunRef,
        tell: Callable[[str], object] = lambda _: None,  # noqa: ARG002
        *,
        force: bool = False,
    ) -> Sequence[str]:
        """Forget the run, once its supervisor has ended and nothing of it is left running."""
        from echelon.engines.local import ending

        folder = self.store.find(ref.name)
        ending.settle_for_removal(folder, force=force)
        record = None
        with contextlib.suppress(RunDamaged):
            record = store.read_record(folder)
        self.store.delete(ref.name)
        if record is not None:
            self._release(record)
        return ()

    def runs(self) -> Sequence[RunSummary]:
        """Every run."""
        found = [row for name in self.store.names() if (row := self._summary(name)) is not None]
        return sorted(found, key=lambda each: -each.created)

    def _summary(self, name: str) -> RunSummary | None:
        """The row of a run; None if it was removed meanwhile. That of one that is over is kept for as long as
        its files are the same: a page looks every second.
        """
        folder = self.store.dir(name)
        stamps = store.stamps_of(folder)
        if stamps is not None and (kept := self._over.get(name)) is not None and kept[0] == stamps:
            return kept[1]
        row = self._read_summary(RunRef(engine="local", name=name), folder)
        if stamps is not None and row is not None and row.state in FINAL:
            self._over[name] = stamps, row
        return row

    def _read_summary(self, ref: RunRef, folder: RunDir) -> RunSummary | None:
        try:
            record, final = store.inspect(folder)
            final = final or end_of(folder)
            made_of_runs = record.job.program is not None  # how these stand is in its events alone
            last = [final] if final is not None else []
            events = chain(read_events(folder), last) if made_of_runs or not last else last
            return summarise(record, fold(opening_status(record), events))
        except RunDamaged as error:
            try:
                created = folder.path.lstat().st_mtime
            except FileNotFoundError:
                return None
            return RunSummary(
                name=ref.name, uri=str(ref), state="damaged", created=created, reason=error.problem
            )

    def gpus_held(self) -> dict[str, str]:
        """Which run holds which GPU."""
        from echelon.engines.local import capacity

        return capacity.gpus_held(self.store)


def _digest(folder: RunDir) -> str | None:
    """What identifies the code that was shipped with a run."""
    if not folder.bundle.exists():
        return None
    import hashlib  # it loads OpenSSL, which a run without a snapshot does not need

    return hashlib.sha256(folder.bundle.read_bytes()).hexdigest()
