"""How the ranks of each framework find each other: one small pure file for each, and the table of them.

A launch is a template, since addresses and ports are known only when the agents have joined; they fill it in
for every generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from echelon.errors import Unavailable
from echelon.frameworks import plain, tensorflow, torch
from echelon.model.plan import Launch
from echelon.model.world import World

_LAUNCHES: dict[str, Callable[[Sequence[str], World, int], Launch]] = {
    "plain": plain.launch,
    "tensorflow": tensorflow.launch,
    "torch": torch.launch,
}


def launch(framework: str, argv: Sequence[str], world: World, group: int) -> Launch:
    """How to start the ranks of `world.groups[group]`."""
    if framework not in _LAUNCHES:
        raise Unavailable(
            f"framework {framework!r} is not there yet",
            hint=f"this version knows {', '.join(sorted(_LAUNCHES))}",
        )
    return _LAUNCHES[framework](argv, world, group)
