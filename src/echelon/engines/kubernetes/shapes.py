"""The few fields of nodes and pods that show what is used; a dialect adds those of its own objects.

A cluster's nodes and pods are many and large (images, conditions, managed fields); parsed into these shapes a
thousand of each take a few megabytes. Fields have the API's own names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import field

from echelon.engines.decoding import convert
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.quantities import Quantity

T = TypeVar("T")
Amounts = dict[str, Quantity]


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Some fields of an object, under the API's own names."""


class Condition(Shape, frozen=True):
    """One of an object's conditions."""

    type: str
    status: str = ""


class Taint(Shape, frozen=True):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeLabels(Shape, frozen=True):
    """The labels that tell a node's GPUs, by feature discovery, and its place in the network, by clouds."""

    product: str = field(name=names.GPU_PRODUCT, default="")
    memory: str = field(name="nvidia.com/gpu.memory", default="")  # in MiB
    present: str = field(name="nvidia.com/gpu.present", default="")
    amd_product: str = field(name=names.AMD_PRODUCT, default="")
    amd_memory: str = field(name="amd.com/gpu.vram", default="")  # 192G
    intel_product: str = field(name=names.INTEL_PRODUCT, default="")
    zone: str = field(name="topology.kubernetes.io/zone", default="")
    block: str = field(name="cloud.provider.com/topology-block", default="")  # as Kueue's examples have it
    rack: str = field(name="cloud.provider.com/topology-rack", default="")
    google_block: str = field(name="cloud.google.com/gce-topology-block", default="")
    google_rack: str = field(name="cloud.google.com/gce-topology-subblock", default="")
    amazon_block: str = field(name="topology.k8s.aws/network-node-layer-2", default="")
    amazon_rack: str = field(name="topology.k8s.aws/network-node-layer-3", default="")
    clique: str = field(name="nvidia.com/gpu.clique", default="")  # GPUs joined by one NVLink
    system: str = field(name="kubernetes.io/os", default="linux")
    machine: str = field(name="kubernetes.io/arch", default="")


class NodeMeta(Shape, frozen=True):
    """A node's name and labels."""

    name: str
    labels: NodeLabels = NodeLabels()


class NodeSpec(Shape, frozen=True):
    """Whether a node takes pods."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(Shape, frozen=True):
    """What a node has."""

    allocatable: Amounts = {}
    capacity: Amounts = {}
    conditions: list[Condition] | None = None


class Node(Shape, frozen=True):
    """A node."""

    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Requirements(Shape, frozen=True):
    """Requests and limits of a container, or of a pod as a whole."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(Shape, frozen=True):
    """A container; an init container that is restarted runs beside the others."""

    name: str = ""
    resources: Requirements = Requirements()
    restart_policy: str | None = None


class PodSpec(Shape, frozen=True):
    """Where a pod is, and what it requests."""

    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Amounts | None = None
    resources: Requirements | None = None


class PodMeta(Shape, frozen=True):
    """A pod's name and labels."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)


class PodStatus(Shape, frozen=True):
    """Whether a pod has ended, and when its node took it."""

    phase: str = ""
    start_time: str | None = None


class Pod(Shape, frozen=True):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def read(shape: type[T], objects: Iterable[Mapping[str, Any]]) -> list[T]:
    """Objects of the API, parsed into their shape."""
    return [convert(each, shape) for each in objects]
