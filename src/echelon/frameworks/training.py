"""The part of a world that trains together: its workers, and a chief before them. Others run beside it."""

from __future__ import annotations

from echelon.model.world import World, rank_count, sizes, worker_count

ROLES = ("chief", "worker")


def training(world: World) -> World:
    """The groups that train."""
    return World(groups=tuple(each for each in world.groups if each.role in ROLES))


def ranks_of(world: World) -> str:
    """How many ranks there are, as a launch has it: where that changes, the agents fill it in."""
    return str(rank_count(world)) if sizes(world) is None else "{ranks}"


def workers_of(world: World) -> str:
    """The same of workers."""
    return str(worker_count(world)) if sizes(world) is None else "{workers}"
