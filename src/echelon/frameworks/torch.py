"""PyTorch: the variables that `torch.distributed` reads, which torchrun would set after two seconds of
imports.

A command that calls torchrun itself is started once per worker, and gets torchrun's own variables (PET_*)
instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

from echelon.model.plan import Launch
from echelon.model.world import World, rank_count, worker_count

_ROLES = ("chief", "worker")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch")


def launch(argv: Sequence[str], world: World, group: int) -> Launch:
    """Rank 0 listens on a port that its agent finds free, at the address from which the agent joined.

    A chief is the first rank of the training; workers of other roles are no part of it."""
    procs = world.groups[group].procs
    if world.groups[group].role not in _ROLES:
        return Launch(argv=tuple(argv))  # another program beside the training
    training = World(groups=tuple(each for each in world.groups if each.role in _ROLES))
    if calls_torchrun(argv):
        wiring = {
            "PET_NNODES": str(worker_count(training)),
            "PET_NPROC_PER_NODE": str(procs),
            "PET_NODE_RANK": "{worker}",
            "PET_MASTER_ADDR": "{address:0}",
            "PET_MASTER_PORT": "{port:0}",
        }
        return Launch(argv=tuple(argv), per="worker", wiring=wiring, ports="first")
    wiring = {
        "MASTER_ADDR": "{address:0}",
        "MASTER_PORT": "{port:0}",
        "RANK": "{rank}",
        "LOCAL_RANK": "{local_rank}",
        "WORLD_SIZE": str(rank_count(training)),
        "LOCAL_WORLD_SIZE": str(procs),
        "GROUP_RANK": "{worker}",
        "TORCHELASTIC_ERROR_FILE": "{error_file}",
    }
    return Launch(argv=tuple(argv), wiring=wiring, ports="first")


def calls_torchrun(argv: Sequence[str]) -> bool:
    """Whether a command starts its ranks by itself, with torchrun under one of its names."""
    if PurePath(argv[0]).name == "torchrun":
        return True
    return any(flag == "-m" and module in _LAUNCHER_MODULES for flag, module in pairwise(argv))
