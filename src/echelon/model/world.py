"""The shape of a run: groups of equal workers, numbered through.

Workers and ranks count over all groups in order, so worker 0 and rank 0 belong to the first group. Workers
with different numbers of ranks, or another role, are different groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from echelon.model.resources import Resources
from echelon.values import frozen


@frozen
class Group:
    """Equal workers. The run is over when the ranks of all essential groups have ended. With `least`, their
    number changes, and `workers` are the most.
    """

    role: str = "worker"
    workers: int
    least: int | None = None
    procs: int
    resources: Resources = field(default_factory=Resources)
    essential: bool = True


@frozen
class World:
    """All groups of a run, in order."""

    groups: tuple[Group, ...]


@frozen
class Member:
    """One worker's place: its number, its index among the workers of its role, and its first rank."""

    worker: int
    group: int
    role: str
    index: int
    first_rank: int
    procs: int


def members(world: World) -> Iterator[Member]:
    """Yield every worker of the world in order."""
    worker = rank = 0
    seen: dict[str, int] = {}
    for number, group in enumerate(world.groups):
        for _ in range(group.workers):
            index = seen.get(group.role, 0)
            yield Member(
                worker=worker, group=number, role=group.role, index=index, first_rank=rank, procs=group.procs
            )
            seen[group.role] = index + 1
            worker += 1
            rank += group.procs


def sizes(world: World) -> tuple[int, int] | None:
    """The fewest and the most workers of a world whose number of workers changes."""
    changing = [group for group in world.groups if group.least is not None]
    return (changing[0].least or 1, changing[0].workers) if changing else None


def worker_count(world: World) -> int:
    """How many workers take part."""
    return sum(group.workers for group in world.groups)


def gpu_count(world: World) -> int:
    """How many GPUs the workers need together."""
    return sum(group.workers * group.resources.gpus for group in world.groups)


def rank_count(world: World) -> int:
    """How many ranks take part."""
    return sum(group.workers * group.procs for group in world.groups)
