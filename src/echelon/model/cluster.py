"""What there is to run on, as of one moment: nodes, their GPUs and who holds them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device. `id` is what the workers' environment names it by; `holder` is None while it is free."""

    id: str
    model: str = ""
    memory: int = 0
    holder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine: all it has, and what is not promised to a run yet.

    `free_other` is None where all of `other` is free."""

    name: str
    cpus: float
    memory: float
    free_cpus: float
    free_memory: float
    gpus: tuple[Gpu, ...] = ()
    other: Mapping[str, int] = field(default_factory=dict)
    free_other: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A node that takes no worker now, and why.

    What is `passing` (a cordon, a node that does not answer) is worth waiting for; a taint is not."""

    node: Node
    why: str
    passing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A snapshot. `waiting` are the runs that stand in line, the first to be served first.

    Where `known` is False, we were not allowed to look: a run finds its place by itself. `here` says that its
    one node is this machine."""

    nodes: tuple[Node, ...]
    waiting: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    known: bool = True
    here: bool = True


def matches_type(gpu_type: str, model: str) -> bool:
    """Whether a GPU is of the type asked for: `a100` is part of `NVIDIA-A100-SXM4-80GB`.

    Drivers write a model with spaces, Kubernetes' labels with dashes; both mean the same."""
    return _plain(gpu_type) in _plain(model)


def models_of_type(gpu_type: str, cluster: Cluster) -> tuple[str, ...]:
    """The models in the cluster that a type asked for means, whether their nodes take workers now or not."""
    nodes = [*cluster.nodes, *(each.node for each in cluster.left_out)]
    models = {gpu.model for node in nodes for gpu in node.gpus}
    return tuple(sorted(model for model in models if matches_type(gpu_type, model)))


@lru_cache(maxsize=256)  # a cluster has thousands of GPUs, but few models
def _plain(model: str) -> str:
    return re.sub(r"[\s_-]+", "-", model.lower())
