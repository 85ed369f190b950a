"""What some engines can do and others cannot: a shell beside a rank, ports of workers, volumes, a check-up,
usage, samples, objects beside a job, code that is sent later.

Each is a small protocol, and an engine holds one object for each that it has. `required` turns a missing one
into the one error that all commands give."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from echelon.errors import InvalidJob, Unavailable
from echelon.model.engine.traits import Traits
from echelon.model.run import Record, RunRef, StopSignal, opening_status
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.model.copy import Copied, OpenCopy, Progress
    from echelon.model.engine.cluster import Cluster
    from echelon.model.engine.finding import Finding
    from echelon.model.engine.sample import Samples
    from echelon.model.engine.usage import ClusterUsage, MachineUsage
    from echelon.model.engine.volume import Volume
    from echelon.model.event import Event
    from echelon.model.job import Job
    from echelon.model.pods.pod import PodOptions
    from echelon.model.queue import HoldingRun, Place, QueuedRun

A = TypeVar("A")


class Shell(Protocol):
    """Commands in the place of a rank."""

    def enter(
        self, ref: RunRef, command: Sequence[str] = (), *, worker: int | None = None, rank: int | None = None
    ) -> int:
        """Run a command, or a shell if there is none, with a rank's environment and in its working folder.

        Its streams are this process's own. Returns its exit code. Without `rank` it is the first of `worker`,
        without both rank 0."""
        ...


@frozen
class StopOrder:
    """A stop that was asked for: with which signal it begins, and how long the ranks of each step have."""

    signal: StopSignal = "SIGTERM"
    grace: float | None = None  # None is what each was started with


class Programs(Protocol):
    """Runs that are made of runs: what their executors tell, and what they are told."""

    def tell(self, ref: RunRef, event: Event) -> None:
        """Something has happened in the run."""
        ...

    def asked(self, ref: RunRef) -> StopOrder | None:
        """The last stop that was asked for since the run was started."""
        ...

    def starting_many(self) -> AbstractContextManager[None]:
        """A context in which this process starts many runs of this machine: each takes less time."""
        ...


@frozen
class ShippedCode:
    """The code of a run as it was packed: its sha256, and the archive, where this machine has it."""

    digest: str
    archive: bytes | None = None


class Shipping(Protocol):
    """What was shipped for runs."""

    def code(self, ref: RunRef) -> ShippedCode | None:
        """The code of a run; None if its script runs where it is, in a folder or an image."""
        ...


class PortPair(NamedTuple):
    """A port of a worker, and the one here that stands for it; 0 here means any that is free."""

    local: int
    remote: int


class Ports(Protocol):
    """Ports of workers that are not on this machine."""

    def forward(
        self, ref: RunRef, pairs: Sequence[PortPair], *, worker: int, tell: Callable[[str], object]
    ) -> None:
        """Pass connections to local ports on to a worker, until it has ended. `tell` gets what happens."""
        ...


class Delivery(Protocol):
    """What is sent to a run when its first worker has started: code that is too large to be recorded, and the
    checkpoints that a run goes on from which was resumed.
    """

    def is_due(self, ref: RunRef) -> bool:
        """Whether anything is sent to the run: it needs a command that stays with it."""
        ...

    def has_code(self, ref: RunRef) -> bool:
        """Whether code is."""
        ...

    def deliver(self, ref: RunRef, watch: CopyWatch) -> None:
        """Send what the run waits for, if it waits for anything. Where that fails, the run ends as failed. It
        may be repeated: what has arrived is not sent again.
        """
        ...


class Volumes(Protocol):
    """Storage that stays when workers are gone, and files to and from it."""

    @property
    def place(self) -> str:
        """Where these volumes are, for messages."""
        ...

    def list_all(self) -> Sequence[Volume]:
        """Every volume, by name."""
        ...

    def copies(self) -> Sequence[OpenCopy]:
        """Every copy to or from a volume that goes on, the newest first."""
        ...

    def read(self, name: str) -> Volume:
        """One volume; InvalidJob, which names those there are, if there is none of that name."""
        ...

    def shared_classes(self) -> Sequence[str]:
        """The storage classes that are known to serve pods of several nodes at once."""
        ...

    def create(
        self, name: str, *, size: int, mode: str, storage_class: str | None, labels: Mapping[str, str]
    ) -> Volume:
        """Make a volume."""
        ...

    def remove(self, name: str, uid: str = "") -> None:
        """Remove a volume; StateTrouble if it is in use. With `uid`, only the one that has it."""
        ...

    def send(
        self, source: Path, volume: str, path: str, options: PodOptions, watch: CopyWatch, *, content: bool
    ) -> Copied:
        """Copy a file or a folder of this machine to `path` on a volume, as `cp -r` does: below a folder that
        is there, else under that name. With `content`, what is in the folder `source` instead of itself.
        """
        ...

    def fetch(
        self, volume: str, path: str, to: str, options: PodOptions, watch: CopyWatch, *, content: bool
    ) -> Copied:
        """Copy what is at `path` on a volume to this machine, by the same rule."""
        ...


class Put(NamedTuple):
    """What became of an object that was to be there; of one whose content was replaced, `undo` is the change
    that brings the former one back, unless another user has changed it since.
    """

    kind: str
    name: str
    done: Literal["created", "changed", "kept"]
    undo: Mapping[str, Any] | None = None


class Manifests(Protocol):
    """Objects that users write down beside their jobs."""

    def find(self, resource: str, name: str) -> Mapping[str, Any] | None:
        """One object, or None; `resource` is plural.version.group."""
        ...

    def put(self, objects: Sequence[Mapping[str, Any]], *, dry_run: bool = False) -> Sequence[Put]:
        """Create what is not there; an object in use stays as it is. They stay when a run is removed."""
        ...

    def check_taken_up(
        self, job: Mapping[str, Any], beside: Sequence[Mapping[str, Any]], done: Sequence[Put]
    ) -> None:
        """Wait until a controller has taken up a job that was put. Raises Unavailable if none does; the job,
        and what of the objects `beside` it was created (`done`), is then removed again, and what was changed
        has its former content.
        """
        ...

    def take_back(self, objects: Sequence[Mapping[str, Any]], done: Sequence[Put]) -> None:
        """Remove what of the objects was created (`done`), and give back what was replaced in others."""
        ...

    def pods(self, ref: RunRef) -> Mapping[int, Mapping[str, Any]]:
        """The pod of each worker of a run, the newest where it was replaced."""
        ...


class CopyWatch(Protocol):
    """Gets the progress of a copy while it goes on."""

    def update(self, now: Progress) -> object:
        """How far it is."""
        ...

    def notice(self, text: str) -> object:
        """What it waits for."""
        ...


class Checkup(Protocol):
    """Whether runs would work, and what is missing for what."""

    def check_up(self, *, python: str, image: str | None = None, workers: int = 1) -> Iterator[Finding]:
        """Look at one thing after another: at `python` where ranks use this machine's, at `image` where they
        run in one, and, with two `workers`, at what is between them.
        """
        ...

    def missing_rights(self) -> Sequence[Mapping[str, object]]:
        """What an administrator would have to apply for the user to have every right; empty if they have."""
        ...


class Usage(Protocol):
    """Who uses what."""

    def measure(self) -> MachineUsage | ClusterUsage:
        """Look at everything, now."""
        ...


class Sampling(Protocol):
    """What the ranks of a run use, as their agents measure it every few seconds. Reading changes nothing."""

    def newest(self, ref: RunRef) -> Samples:
        """The newest sample of every worker whose ranks run."""
        ...

    def follow(self, ref: RunRef, left: threading.Event) -> Iterator[Samples]:
        """The same again whenever it has changed, until the run has ended or `left` is set."""
        ...


@frozen
class QueueSnapshot:
    """Who waits and who holds what, now. `view` is the cluster as a job sees it; it gives the same object for
    jobs that see the same. `elsewhere` wait for a scheduler or queue that is not ours, and have no position.
    """

    waiting: Sequence[QueuedRun]
    holding: Sequence[HoldingRun]
    view: Callable[[Job], Cluster]
    elsewhere: Sequence[Place] = ()


class Queueing(Protocol):
    """A queue that reaches beyond the runs of one namespace."""

    def look(self) -> QueueSnapshot:
        """The queue as it is now, as far as the user may see it."""
        ...


def required(ability: A | None, what: str, traits: Traits) -> A:
    """The ability; raises Unavailable if the engine lacks it."""
    if ability is None:
        raise Unavailable(f"{traits.place} has no {what}", hint="--on chooses another place")
    return ability


class ChosenRank(NamedTuple):
    """A rank and its worker."""

    worker: int
    rank: int


def choose_rank(record: Record, worker: int | None, rank: int | None) -> ChosenRank:
    """The rank that is meant: as named, else the first of the worker, else rank 0."""
    name, workers = record.ref.name, opening_status(record).workers
    if not workers:
        raise Unavailable(f"run {name!r} has not started", hint=f"`echelon status {name}` tells why")
    if rank is None:
        found = [each for each in workers if each.worker == (worker or 0)]
        if not found:
            raise _no_such("worker", worker, [each.worker for each in workers], name)
        rank = found[0].ranks[0]
    found = [each for each in workers if rank in each.ranks]
    if not found:
        raise _no_such("rank", rank, [number for each in workers for number in each.ranks], name)
    if worker is not None and worker != found[0].worker:
        raise InvalidJob(
            "rank", rank, f"is not of worker {worker}", hint=f"it is of worker {found[0].worker}"
        )
    return ChosenRank(worker=found[0].worker, rank=rank)


def _no_such(field: str, value: int | None, there: Sequence[int], run: str) -> InvalidJob:
    hint = f"they are numbered 0 to {max(there)}" if len(there) > 1 else "there is only number 0"
    return InvalidJob(field, value, f"is not a {field} of run {run!r}", hint=hint)
