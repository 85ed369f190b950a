"""PyTorch: the variables that `torch.distributed` reads, which torchrun would set after two seconds of
imports.

A command that calls torchrun itself is started once per worker, and gets torchrun's own variables (PET_*)
instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from pathlib import PurePath

from echelon.frameworks.training import ROLES, ranks_of, training, workers_of
from echelon.model.plan import Launch
from echelon.model.world import World, rank_count

_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_CALL = re.compile(
    r"(?<![\w./-])(?:[\w./-]*/)?torchrun(?=\s|$)|(?<!\S)-m\s+torch\.distributed\.(?:run|launch)(?=\s|$)"
)
_NO_CALLS = ("#", "echo ", "printf ")  # lines of a shell script that only name it


def launch(argv: Sequence[str], world: World, group: int) -> Launch:
    """Rank 0 listens on a port that its agent finds free, at the address from which the agent joined.

    A chief is the first rank of the training; workers of other roles are not part of it."""
    if not calls_torchrun(argv) or world.groups[group].role not in ROLES:
        return launch_ranks(argv, world, group)
    wiring = {
        "PET_NNODES": workers_of(training(world)),
        "PET_NPROC_PER_NODE": str(world.groups[group].procs),
        "PET_NODE_RANK": "{worker}",
        "PET_MASTER_ADDR": "{address:0}",
        "PET_MASTER_PORT": "{port:0}",
    }
    return Launch(argv=tuple(argv), per="worker", wiring=wiring, ports="first")


def launch_ranks(argv: Sequence[str], world: World, group: int) -> Launch:
    """Start the command for every rank, with the variables of `torch.distributed`."""
    here = world.groups[group]
    if here.role not in ROLES:
        return Launch(argv=tuple(argv))  # another program beside the training
    ranks = rank_count(training(world))
    wiring = {
        "MASTER_ADDR": "{address:0}",
        "MASTER_PORT": "{port:0}",
        "RANK": "{rank}",
        "WORLD_SIZE": ranks_of(training(world)),
        "TORCHELASTIC_ERROR_FILE": "{error_file}",
    }
    if here.resources.gpus:  # each worker sees its own devices, and counts them from 0
        wiring |= {
            "LOCAL_RANK": "{local_rank}",
            "LOCAL_WORLD_SIZE": str(here.procs),
            "GROUP_RANK": "{worker}",
        }
    else:  # workers of one machine see the same devices: a script takes the one of its LOCAL_RANK
        words = {"LOCAL_RANK": "rank_here", "LOCAL_WORLD_SIZE": "ranks_here", "GROUP_RANK": "machine"}
        wiring |= {name: f"{{{word}:{ranks}}}" for name, word in words.items()}
    return Launch(argv=tuple(argv), wiring=wiring, ports="first")


def calls_torchrun(argv: Sequence[str]) -> bool:
    """Whether a command starts its ranks by itself, with torchrun under one of its names."""
    if PurePath(argv[0]).name == "torchrun":
        return True
    return any(flag == "-m" and module in _LAUNCHER_MODULES for flag, module in pairwise(argv))


def find_alone(argv: Sequence[str], workers: int) -> str | None:
    """Of a command that calls torchrun, the first flag that several workers cannot share: a node's number,
    another count of nodes, `--standalone`. A value that is a variable's may differ between them.
    """
    flags = list(takewhile(lambda word: not word.endswith(".py"), argv))
    for word, after in pairwise((*flags, "")):
        name, joined, value = word.partition("=")
        name, value = name.replace("_", "-"), value if joined else after
        if name == "--standalone":
            return word
        wrong = name == "--node-rank" or (name == "--nnodes" and value != str(workers))
        if wrong and value.isdecimal():
            return word if joined else f"{word} {after}"
    return None


def shell_calls_torchrun(text: str) -> bool:
    """Whether a line of a shell script, or of what a shell is given with -c, calls torchrun."""
    lines = (line.strip() for line in text.splitlines())
    return any(_CALL.search(line) for line in lines if not line.startswith(_NO_CALLS))
