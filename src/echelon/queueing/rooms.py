"""What the queue's policy asks of a cluster: a place for a run, and what is free besides."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, Protocol, Self, TypeVar

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

    def take(self, run: QueuedRun) -> Seated[Self] | Full:
        """Give the run a place, under its name."""
        ...

    def without(self, names: Collection[str]) -> Self:
        """What is free once these runs have ended."""
        ...


@frozen
class Seated(Generic[R]):
    """A run has its place: what is free besides, and the GPUs it took."""

    room: R
    gpus: int
