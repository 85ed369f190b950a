"""The few fields of nodes, pods, Jobs and records that show what is used.

A cluster's nodes and pods are many and large (images, conditions, managed fields); parsed into these shapes a
thousand of each take a few megabytes. Fields have the API's own names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import field

from echelon.engines.decoding import convert
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
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeLabels(_Shape, frozen=True):
    """The labels by which feature discovery describes a node's GPUs."""

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
    """Requests and limits of a container, or of a pod as a whole."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(_Shape, frozen=True):
    """A container; an init container that is restarted runs beside the others."""

    resources: Requirements = Requirements()
    restart_policy: str | None = None


class PodSpec(_Shape, frozen=True):
    """Where a pod is, and what it requests."""

    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Amounts | None = None
    resources: Requirements | None = None


class PodLabels(_Shape, frozen=True):
    """The labels that tie a pod to its run."""

    run: str = field(name=names.RUN, default="")
    component: str = field(name=names.COMPONENT, default="")
    job: str = field(name="batch.kubernetes.io/job-name", default="")


class PodAnnotations(_Shape, frozen=True):
    """The annotation with a pod's index in its Job."""

    index: str = field(name=names.COMPLETION_INDEX, default="")


class PodMeta(_Shape, frozen=True):
    """A pod's name, labels and annotations."""

    name: str
    namespace: str = ""
    labels: PodLabels = PodLabels()
    annotations: PodAnnotations = PodAnnotations()


class PodStatus(_Shape, frozen=True):
    """Whether a pod has ended."""

    phase: str = ""


class Pod(_Shape, frozen=True):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class JobAnnotations(_Shape, frozen=True):
    """The annotation with the planned nodes of a Job's workers: a JSON list."""

    nodes: str = field(name=names.NODES, default="")


class JobLabels(_Shape, frozen=True):
    """The labels that tie a Job to its run."""

    run: str = field(name=names.RUN, default="")


class JobMeta(_Shape, frozen=True):
    """A Job's name, labels and annotations."""

    name: str
    namespace: str = ""
    labels: JobLabels = JobLabels()
    annotations: JobAnnotations = JobAnnotations()
    deletion_timestamp: str | None = None


class Template(_Shape, frozen=True):
    """A Job's pod template."""

    spec: PodSpec = PodSpec()


class JobSpec(_Shape, frozen=True):
    """How many pods a Job creates, and whether it is suspended."""

    completions: int | None = None
    suspend: bool = False
    template: Template = Template()


class JobStatus(_Shape, frozen=True):
    """A Job's conditions, and the indexes that have ended for good: `0-3,7`."""

    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: list[Condition] | None = None


class Job(_Shape, frozen=True):
    """A Job."""

    metadata: JobMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


def read(shape: type[T], objects: Iterable[Mapping[str, Any]]) -> list[T]:
    """Objects of the API, parsed into their shape."""
    return [convert(each, shape) for each in objects]
