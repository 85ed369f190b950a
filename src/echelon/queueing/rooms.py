"""What the queue's policy asks of a cluster: a place for a run, and what is free besides."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any, Generic, Protocol, Self, TypeVar

from echelon.model.plan import Plan
from echelon.model.queue import QueuedRun
from echelon.values import frozen

R = TypeVar("R", bound="Room")


@frozen
class Full:
    """There is no place; `never` if there cannot be one."""

    reason: str
    never: bool = False


class Room(Protocol):
    """What is free. A value: taking a place gives another Room."""

    def take(self, run: QueuedRun, most: int | None, *, whole: bool = False) -> Seated[Self] | Full:
        """Give the run a place with at most so many GPUs, under its name; with `whole`, what one node could
        hold gets its place on one node or none.
        """
        ...

    def give(self, run: QueuedRun, seated: Seated[Any]) -> Self:
        """What is free besides a place that the run was found in another Room."""
        ...

    def fits(self, run: QueuedRun) -> bool:
        """Whether there is a place for the run."""
        ...

    def without(self, names: Collection[str]) -> Self:
        """What is free once these runs have ended."""
        ...

    def kind(self, run: QueuedRun) -> Hashable:
        """What decides which places a run can have: of two runs of one kind both fit, or neither."""
        ...

    def competes(self, one: QueuedRun, other: QueuedRun) -> bool:
        """Whether there is a node that both could use."""
        ...


@frozen
class Seated(Generic[R]):
    """A run has its place: what is free besides, and the GPUs it took."""

    room: R
    gpus: int
    plan: Plan | None = None
