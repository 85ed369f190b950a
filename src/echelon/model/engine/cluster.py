"""A snapshot of what there is to run on: nodes, their GPUs and the holders of these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache

from echelon.values import frozen

GPU_RESOURCE = "nvidia.com/gpu"  # what pods ask for where a cluster cannot be read


@frozen
class Gpu:
    """One device. `id` is its name in the workers' environment; `holder` is None while it is free."""

    id: str
    model: str = ""
    memory: int = 0
    holder: str | None = None


@frozen
class Node:
    """One machine: all it has, and what is free.

    `free_other` is None where all of `other` is free."""

    name: str
    cpus: float
    memory: float
    free_cpus: float
    free_memory: float
    gpus: tuple[Gpu, ...] = ()
    other: Mapping[str, int] = field(default_factory=dict)
    free_other: Mapping[str, int] | None = None
    domains: tuple[str, ...] = ()  # of the network, the widest first; "" where it is not known


@frozen
class LeftOut:
    """A node that takes no worker now, why, and what would make it take some.

    A `passing` reason (a cordon, a node that does not answer) is worth waiting for; a taint is not."""

    node: Node
    why: str
    passing: bool
    hint: str = ""


@frozen
class Cluster:
    """A snapshot. `waiting` are the queued runs, in the order of admission.

    `known` is False where the user may not list nodes: the scheduler alone places a run. `here` means that
    the one node is this machine. `gpu_resource` is what a pod asks for to get one of the GPUs."""

    nodes: tuple[Node, ...]
    waiting: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    known: bool = True
    here: bool = True
    gpu_resource: str = GPU_RESOURCE


def free_gpus(node: Node) -> int:
    """How many GPUs of a node are held by no run."""
    return sum(gpu.holder is None for gpu in node.gpus)


def matches_type(gpu_type: str, model: str) -> bool:
    """Whether a GPU is of the requested type: `a100` is part of `NVIDIA-A100-SXM4-80GB`.

    Drivers write a model with spaces, Kubernetes' labels with dashes; both mean the same."""
    return _plain(gpu_type) in _plain(model)


@lru_cache(maxsize=256)  # a cluster has thousands of GPUs, but few models
def _plain(model: str) -> str:
    return re.sub(r"[\s_-]+", "-", model.lower())
