"""A snapshot of what there is to run on: nodes, their GPUs and the holders of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache

from echelon.model.display import some_of
from echelon.values import frozen

_NAMED = 4  # nodes
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
class Devices:
    """Devices of one model that a driver offers by resource claims (DRA), and not as a number of their nodes:
    `--gpus` does not ask for them. Without `nodes` no single node has them.
    """

    driver: str
    model: str
    count: int
    nodes: tuple[str, ...] = ()


@frozen
class Cluster:
    """A snapshot. `waiting` are the queued runs, in the order of admission.

    `known` is False where the user may not list nodes: the scheduler alone places a run. `here` means that
    the one node is this machine. `gpu_resource` is what a pod asks for to get one of the GPUs. `devices` are
    looked for where GPUs are wanted and no node has any."""

    nodes: tuple[Node, ...]
    waiting: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    known: bool = True
    here: bool = True
    gpu_resource: str = GPU_RESOURCE
    devices: tuple[Devices, ...] = ()


def name_devices(devices: Iterable[Devices]) -> str:
    """Devices by number, model, driver and nodes: `2 H100 of gpu.nvidia.com on node-a`."""
    return ", ".join(
        f"{each.count} {f'{each.model} of' if each.model else 'of'} {each.driver}"
        + (f" on {some_of(each.nodes, _NAMED)}" if each.nodes else "")
        for each in devices
    )


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
