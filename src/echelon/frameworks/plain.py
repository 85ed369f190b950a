"""Any program: it finds its index and the count in the variables that every rank has (ECHELON_RANK,
ECHELON_RANKS).

It gets those of PyTorch, too: a program that cannot be read may use them, and they hurt no other."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.frameworks.torch import launch_ranks
from echelon.model.plan import Launch
from echelon.model.world import World


def launch(argv: Sequence[str], world: World, group: int) -> Launch:
    """The command for every rank."""
    return launch_ranks(argv, world, group)
