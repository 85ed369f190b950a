"""The part of a world that trains together: its workers, and a chief before them. Others run beside it."""

from __future__ import annotations

from echelon.model.world import World

ROLES = ("chief", "worker")


def training(world: World) -> World:
    """The groups that train."""
    return World(groups=tuple(each for each in world.groups if each.role in ROLES))
