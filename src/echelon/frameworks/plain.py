"""Any program: it finds its index and the count in the variables that every rank has (ECHELON_RANK,
ECHELON_RANKS).
"""

from __future__ import annotations

from collections.abc import Sequence

from echelon.model.plan import Launch
from echelon.model.world import World


def launch(argv: Sequence[str], _world: World, _group: int) -> Launch:
    """The command alone."""
    return Launch(argv=tuple(argv))
