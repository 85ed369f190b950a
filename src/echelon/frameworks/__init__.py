"""How the ranks of each framework find each other: one small pure file for each, and the table of them.

A launch is a template, since addresses and ports are known only when the agents have joined; they fill it in
for every generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from echelon.frameworks import horovod, jax, mpi, plain, tensorflow, torch, torchrun, xgboost
from echelon.model.plan import Launch
from echelon.model.world import World

_LAUNCHES: dict[str, Callable[[Sequence[str], World, int], Launch]] = {
    "horovod": horovod.launch,
    "jax": jax.launch,
    "mpi": mpi.launch,
    "plain": plain.launch,
    "tensorflow": tensorflow.launch,
    "torch": torch.launch,
    "torchrun": torchrun.launch,
    "xgboost": xgboost.launch,
}
SMALLEST_FIRST = frozenset({"horovod"})  # rank 0 belongs on the worker with the fewest GPUs


def launch(framework: str, argv: Sequence[str], world: World, group: int) -> Launch:
    """How to start the ranks of `world.groups[group]`."""
    return _LAUNCHES[framework](argv, world, group)
