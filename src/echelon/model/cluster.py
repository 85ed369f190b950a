"""What there is to run on, as of one moment: nodes, their GPUs and who holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device. `id` is what the workers' environment names it by; `holder` is None while it is free."""

    id: str
    model: str = ""
    memory: int = 0
    holder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine: all it has, and what is not promised to a run yet."""

    name: str
    cpus: float
    memory: float
    free_cpus: float
    free_memory: float
    gpus: tuple[Gpu, ...] = ()
    other: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A snapshot. `waiting` are the runs that stand in line, the first to be served first."""

    nodes: tuple[Node, ...]
    waiting: tuple[str, ...] = ()
