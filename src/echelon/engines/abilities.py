"""What some engines can do and others cannot: a shell beside a rank, volumes, a check-up, usage.

Each is a small protocol, and an engine holds one object for each that it has. `required` turns a missing one
into the one error that all commands give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from echelon.errors import InvalidJob, Unavailable
from echelon.model.run import Record, RunRef, opening_status
from echelon.model.traits import Traits

if TYPE_CHECKING:
    from echelon.model.copy import Copied, OpenCopy, Progress
    from echelon.model.finding import Finding
    from echelon.model.pod import PodOptions
    from echelon.model.usage import ClusterUsage, MachineUsage
    from echelon.model.volume import Volume

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

    def create(
        self, name: str, *, size: int, mode: str, storage_class: str | None, labels: Mapping[str, str]
    ) -> Volume:
        """Make a volume."""
        ...

    def remove(self, name: str) -> None:
        """Remove a volume; StateTrouble if it is in use."""
        ...

    def send(self, source: Path, volume: str, path: str, options: PodOptions, watch: CopyWatch) -> Copied:
        """Copy a file or a folder's content of this machine to `path` on a volume."""
        ...

    def fetch(self, volume: str, path: str, to: str, options: PodOptions, watch: CopyWatch) -> Copied:
        """Copy what is at `path` on a volume to this machine."""
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

    def check_up(self, *, python: str, image: str | None = None) -> Iterator[Finding]:
        """Look at one thing after another: at `python` where ranks use this machine's, at `image` where they
        run in one.
        """
        ...


class Usage(Protocol):
    """Who uses what."""

    def measure(self) -> MachineUsage | ClusterUsage:
        """Look at everything, now."""
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
    return InvalidJob(field, value, f"is no {field} of run {run!r}", hint=hint)
