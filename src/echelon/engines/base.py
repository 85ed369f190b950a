"""The Engine protocol: what every engine offers, and nothing that can be computed above it.

Nothing above asks which engine it has: what differs is a trait (`model/engine/traits.py`), and what not every
engine can do is an ability (`abilities.py`), which it has or lacks. The conformance suite in the tests
defines the verbs exactly."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from echelon.errors import RunExists, StateTrouble, UnknownRun
from echelon.values import frozen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from echelon.bundle import Bundle
    from echelon.engines.abilities import (
        Checkup,
        Delivery,
        Manifests,
        Ports,
        Programs,
        Queueing,
        Sampling,
        Shell,
        Shipping,
        Usage,
        Volumes,
    )
    from echelon.engines.notebook_servers import NotebookServers
    from echelon.model.copy import LeftOut
    from echelon.model.engine.cluster import Cluster
    from echelon.model.engine.traits import Traits, Where
    from echelon.model.event import Event
    from echelon.model.job import Job
    from echelon.model.output.log import LogBlock, LogLine
    from echelon.model.plan import Plan
    from echelon.model.run import Record, RunRef, StopSignal
    from echelon.model.status import RunSummary
    from echelon.model.world import World


class Taken(Exception):
    """What a plan needs was given to another run in the meantime."""


class NotAdmitted(Exception):
    """Another system decides when the run starts, and has not let it yet; the text is what it says."""


class ShapeKept(Exception):
    """The workers of a recorded run cannot be given the plan's shape any more: they keep theirs, `world`."""

    def __init__(self, world: World) -> None:
        super().__init__("its workers keep the shape that they were recorded with")
        self.world = world


class RunDamaged(StateTrouble):
    """What was written down of a run cannot be read; it can still be listed, stopped and removed."""

    def __init__(self, name: str, problem: str, *, hint: str = "") -> None:
        super().__init__(
            f"run {name!r} is damaged: {problem}",
            hint=hint or f"`echelon rm {name}` removes it, unless something of it still runs",
        )
        self.problem = problem


@frozen
class Saving:
    """Asks for lines to be saved among the results on this machine as they come. What keeps them from it is
    told once; following ends when `left` is set."""

    tell: Callable[[str], object] = lambda _trouble: None
    left: threading.Event = field(default_factory=threading.Event)


@frozen
class TakeOver:
    """Asks for a run to be looked after that another machine submitted. The process that does so at this
    moment may be fetching the results: it is waited for, until `until` (of `time.monotonic`) at most, and
    `tell` gets for whom.
    """

    tell: Callable[[str], object] = lambda _text: None
    until: float | None = None


class Tender(Protocol):
    """Holds a run's tender claim, and with it the right and the duty to look after the run from outside."""

    held: bool
    """Whether the claim was still this process's when it was last renewed."""

    queued: bool
    """Whether the run waited to be admitted when it was last looked at."""

    def tend(self) -> float:
        """Do what the run needs now; returns the seconds until the next time."""
        ...

    def keep(self, end: Event) -> None:
        """Write the run's end into its record."""
        ...

    def release(self) -> None:
        """Give the claim up."""
        ...


class Engine(Protocol):
    """A place where runs happen. An ability that it lacks is None."""

    @property
    def traits(self) -> Traits:
        """How it differs from other engines."""
        ...

    @property
    def where(self) -> Where:
        """Which place it is, as far as there are several. Nothing is asked for it, but files are read."""
        ...

    @property
    def shell(self) -> Shell | None:
        """Commands in the place of a rank."""
        ...

    @property
    def ports(self) -> Ports | None:
        """Ports of workers that are not on this machine."""
        ...

    @property
    def delivery(self) -> Delivery | None:
        """Code that is sent to runs that have started."""
        ...

    @property
    def volumes(self) -> Volumes | None:
        """Storage that stays."""
        ...

    @property
    def checkup(self) -> Checkup | None:
        """Whether runs would work here."""
        ...

    @property
    def usage(self) -> Usage | None:
        """Who uses what."""
        ...

    @property
    def sampling(self) -> Sampling | None:
        """What the ranks of a run use."""
        ...

    @property
    def manifests(self) -> Manifests | None:
        """Objects beside a job."""
        ...

    @property
    def queueing(self) -> Queueing | None:
        """A queue that reaches beyond the runs of one namespace."""
        ...

    @property
    def programs(self) -> Programs | None:
        """Runs that are made of runs."""
        ...

    @property
    def shipping(self) -> Shipping | None:
        """What was shipped for runs."""
        ...

    @property
    def notebooks(self) -> NotebookServers | None:
        """Jupyter servers for users."""
        ...

    def names(self) -> Sequence[str]:
        """The names of all runs, and nothing else of them: a shell's completion does not wait."""
        ...

    def platforms(self) -> frozenset[str] | None:
        """The platforms (linux/amd64) that an image for its workers has to fit; None where they use none."""
        ...

    def cluster(self, *, gpus: bool = True, job: Job | None = None) -> Cluster:
        """What there is for a job, and who holds it, now. Without `gpus` they need not be looked at."""
        ...

    def adds_nodes(self) -> bool:
        """Whether it is known to get more nodes when workers find no room on those that it has."""
        ...

    def record(self, job: Job, bundle: Bundle | None, held: Plan | None = None) -> RunRef:
        """Make the run exist, under its name; nothing runs yet.

        With `held`, an engine that can makes its workers' objects now, in this shape, so that a process which
        may not create any can start them. The same job again, if it never started, is taken up.
        """
        ...

    def reopen(self, ref: RunRef, job: Job, held: Plan | None = None) -> None:
        """Make a run that has ended ready to start again as `job`, with the code that was shipped for it and
        in its results: it is as after `record`. One that is recorded and not yet started gets what it lacks,
        since an earlier call may have been cut off. Raises StateTrouble, with the reason, where that cannot
        be.
        """
        ...

    def read(self, ref: RunRef) -> Record:
        """What was recorded; raises UnknownRun, which suggests the nearest name, or RunDamaged."""
        ...

    def queue(self, ref: RunRef, reason: str) -> None:
        """Leave the run queued, to be tried again, with the reason."""
        ...

    def start(self, ref: RunRef, plan: Plan) -> None:
        """Take what the plan names and start the run; raises Taken if another run was faster, and ShapeKept
        if its workers can no more be given the plan's shape.

        Starting again does nothing. A run that was recorded as held is started by changes of its workers'
        objects alone: nothing is created, no secret is read.
        """
        ...

    def check(self, job: Job, coming: Collection[tuple[str, str]] = ()) -> None:
        """Raise what is known to keep the job from ever running here: what it names and is not there, unless
        it is among what is `coming`, by kinds and names: the submission makes that before the run starts.
        """
        ...

    def notes(self, job: Job) -> Sequence[str]:
        """What the user should know of how a job would run here."""
        ...

    def preview(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:
        """What `start` would do, for a person to read."""
        ...

    def objects(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:
        """The objects that `start` would make, as YAML; "" where it makes none."""
        ...

    def events(self, ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """What happened, in order; with `follow`, until the run has finished or `timeout` seconds have
        passed.
        """
        ...

    def logs(
        self,
        ref: RunRef,
        *,
        ranks: frozenset[int] | None = None,
        follow: bool = False,
        saving: Saving | None = None,
    ) -> Iterator[LogLine]:
        """What the ranks wrote; with `follow`, as it comes, until the run has finished and all is read.

        With `saving` too, all of it is saved among the results on this machine as it comes, where the workers
        do not write there themselves."""
        ...

    def output(
        self, ref: RunRef, *, follow: bool = True, saving: Saving | None = None
    ) -> Iterator[LogLine | LogBlock]:
        """As `logs`, of all ranks; lines that a rank wrote at once may come as one block."""
        ...

    def earlier_output(self, ref: RunRef) -> Iterator[LogLine | LogBlock]:
        """What the ranks wrote before the run was resumed, in all of its starts, the oldest first; as far as
        it was kept.
        """
        ...

    def earlier_events(self, ref: RunRef) -> Iterator[Event]:
        """What had happened before that; each start has its end."""
        ...

    def recent(self, ref: RunRef, worker: int) -> Iterator[LogLine]:
        """The last lines that the ranks of a worker wrote, some hundred, for a look that must cost little."""
        ...

    def fetch(
        self,
        ref: RunRef,
        path: str,
        to: Path,
        notice: Callable[[LeftOut], object] = ...,
        tell: Callable[[str], object] = ...,
    ) -> Path:
        """Copy a file or folder of the results (all of them for `.`) to `to`; returns where it is. `notice`
        gets what cannot be copied, `tell` what is waited for. The run and its workers stay as they are.
        """
        ...

    def seals(self, ref: RunRef) -> Path | None:
        """The folder of this machine to which the ranks of a run write the digests of what only they may have
        written; None where other users could write to it, too.
        """
        ...

    def collect(self, ref: RunRef, progress: Callable[[int, int], object] | None = None) -> Sequence[LeftOut]:
        """Bring the results of a run that has ended to where they belong, and let its workers go once all of
        them are there; returns what cannot be copied. Raises ResultsIncomplete if any are missing then.

        Where they are there already, after the first time, and for a run that another machine submitted, it
        does nothing. `progress` is called with the bytes that have come, and how many there are."""
        ...

    def tender(self, ref: RunRef, *, take_over: TakeOver | None = None) -> Tender | None:
        """Take the run's tender claim, if it is free and this machine submitted the run, or `take_over`; None
        where the engine looks after the run itself.
        """
        ...

    def stop(self, ref: RunRef, *, signal: StopSignal = "SIGTERM", grace: float | None = None) -> str | None:
        """Ask for the end. The ranks get that signal and, each `grace` seconds later (the job's, if None),
        the harder ones; a harder one, or another grace, can be asked for meanwhile. Stopping what has ended
        does nothing. Returns what the user should know, if it cannot be done as asked; of a damaged run when
        nothing of it runs any more. Raises StateTrouble where that cannot be had.
        """
        ...

    def remove(
        self, ref: RunRef, tell: Callable[[str], object] = lambda _: None, *, force: bool = False
    ) -> Sequence[str]:
        """Forget a run that has ended; its name is free. Results stay; returns the volumes that have some.
        What only has the run's name is left, and `tell` gets a line on it. Raises StateTrouble where results
        would be lost that were not fetched, or where something lives of a run that is damaged; with `force`
        they are lost, and it is ended.
        """
        ...

    def runs(self) -> Sequence[RunSummary]:
        """Every run, the newest first, without reading a log."""
        ...


def current_user() -> str:
    """The name of the user who runs this process."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container's user need not have a name


def stopped_by(signal: StopSignal) -> str:
    """The reason of a stop that the user of this process asks for; SIGINT is Ctrl-C's."""
    return f"stopped by {current_user()}{' with Ctrl-C' if signal == 'SIGINT' else ''}"


def run_exists(name: str, *, replaceable: bool = True, resume: bool = False) -> RunExists:
    """The error for a name that is taken, by a run or by a job that `--replace` does not remove; `resume` if
    the new run was to go on in its results.
    """
    if resume:
        hint = f"`echelon resume {name}` starts it again as it was; "
        hint += "--reuse-results --replace goes on in its results"
    else:
        instead = "--replace takes its place and keeps its results, or " if replaceable else ""
        free = f"once it has ended, {instead}`echelon rm {name}` frees the name"
        hint = f"`echelon status {name}` shows it; {free}"
    return RunExists(f"a run named {name!r} exists", hint=hint)


def unknown_run(name: str, names: Sequence[str] | Callable[[], Sequence[str]], where: str = "") -> UnknownRun:
    """The error for a name that no run has; `where` was looked, and how to look elsewhere. The `names` that
    there are may be thousands, and an executor asks for each of its steps: they are looked at for the hint.
    """

    def hint() -> str:
        import difflib

        there = names() if callable(names) else names
        steps = [each for each in there if each.startswith(f"{name}-")]
        if steps and name.rpartition("-")[2].isdecimal():  # of a notebook, as `ps` shows it
            return f"a pipeline has one run for each step: {', '.join(steps)}"
        near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
        return f"did you mean {near[0]!r}?" if near else where or "`echelon ps -a` lists the runs"

    return UnknownRun(f"no run named {name!r}", hint=hint)
