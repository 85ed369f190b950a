"""Of nodes, pods, Jobs and records, the parts that tell who uses what, and no more.

A cluster's nodes and pods are many and large (images, conditions, managed fields); read into these shapes a
thousand of each take a few megabytes. Made by `inventory` and read by `usage`; all fields are as the API
names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import field

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.nodes.quantities import Quantity

T = TypeVar("T")
Amounts = dict[str, Quantity]


class _Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    pass


class Condition(_Shape, frozen=True):
    """One of an object's conditions."""

    type: str
    status: str = ""


class Taint(_Shape, frozen=True):
    """What keeps pods away from a node."""

    key: str
    effect: str
    value: str = ""


class NodeLabels(_Shape, frozen=True):
    """What feature discovery says of a node's GPUs."""

    product: str = field(name=names.GPU_PRODUCT, default="")
    memory: str = field(name="nvidia.com/gpu.memory", default="")  # in MiB
    present: str = field(name="nvidia.com/gpu.present", default="")
    amd_product: str = field(name="amd.com/gpu.product-name", default="")
    amd_memory: str = field(name="amd.com/gpu.vram", default="")  # 192G
    system: str = field(name="kubernetes.io/os", default="linux")
    machine: str = field(name="kubernetes.io/arch", default="")


class NodeMeta(_Shape, frozen=True):
    """A node's name and labels."""

    name: str
    labels: NodeLabels = NodeLabels()


class NodeSpec(_Shape, frozen=True):
    """Whether a node takes pods."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(_Shape, frozen=True):
    """What a node has."""

    allocatable: Amounts = {}
    capacity: Amounts = {}
    conditions: list[Condition] | None = None


class Node(_Shape, frozen=True):
    """A node."""

    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Requirements(_Shape, frozen=True):
    """What a container, or a pod as a whole, asks for."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(_Shape, frozen=True):
    """A container; an init container that is restarted runs beside the others."""

    resources: Requirements = Requirements()
    restart_policy: str | None = None


class PodSpec(_Shape, frozen=True):
    """Where a pod is, and what it asks for."""

    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Amounts | None = None
    resources: Requirements | None = None


class PodLabels(_Shape, frozen=True):
    """Whose pod it is."""

    run: str = field(name=names.RUN, default="")
    component: str = field(name=names.COMPONENT, default="")
    job: str = field(name="batch.kubernetes.io/job-name", default="")


class PodNotes(_Shape, frozen=True):
    """Which of its Job's pods it is."""

    index: str = field(name=names.COMPLETION_INDEX, default="")


class PodMeta(_Shape, frozen=True):
    """A pod's names."""

    name: str
    namespace: str = ""
    labels: PodLabels = PodLabels()
    annotations: PodNotes = PodNotes()


class PodStatus(_Shape, frozen=True):
    """Whether a pod has ended."""

    phase: str = ""


class Pod(_Shape, frozen=True):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class JobNotes(_Shape, frozen=True):
    """Where a Job's workers were planned to be: a JSON list."""

    nodes: str = field(name=names.NODES, default="")


class JobLabels(_Shape, frozen=True):
    """Whose Job it is."""

    run: str = field(name=names.RUN, default="")


class JobMeta(_Shape, frozen=True):
    """A Job's names and notes."""

    name: str
    namespace: str = ""
    labels: JobLabels = JobLabels()
    annotations: JobNotes = JobNotes()
    deletion_timestamp: str | None = None


class Template(_Shape, frozen=True):
    """The pods that a Job makes."""

    spec: PodSpec = PodSpec()


class JobSpec(_Shape, frozen=True):
    """How many pods a Job makes, and whether it may."""

    completions: int | None = None
    suspend: bool = False
    template: Template = Template()


class JobStatus(_Shape, frozen=True):
    """Which of a Job's pods have ended for good: `0-3,7`."""

    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: list[Condition] | None = None


class Job(_Shape, frozen=True):
    """A Job."""

    metadata: JobMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


def read(shape: type[T], objects: Iterable[Mapping[str, Any]]) -> list[T]:
    """Objects of the API, each in its shape."""
    return [msgspec.convert(each, shape) for each in objects]
