"""What is read of the cluster's objects, kind by kind; a dialect adds those of its own objects.

Objects are many and large (images, conditions, managed fields): parsed into these shapes, a thousand nodes
take a few megabytes. Fields have the API's own names, and a field that is not there has its default.
`client/border.py` parses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from echelon.engines.kubernetes.quantities import Quantity

Amounts = dict[str, Quantity]
Count = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Some fields of an object, under the API's own names."""


class Condition(Shape, frozen=True):
    """One of an object's conditions."""

    type: str
    status: str = ""


class ToldCondition(Condition, frozen=True):
    """One that says why, which a thousand nodes need not."""

    reason: str = ""
    message: str = ""


class DatedCondition(ToldCondition, frozen=True):
    """One that says since when, too."""

    last_transition_time: str | None = None


C = TypeVar("C", bound=Condition)


def condition(conditions: Iterable[C], name: str) -> C | None:
    """The condition of this type, whatever its status."""
    return next((each for each in conditions if each.type == name), None)


class Taint(Shape, frozen=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


class Labelled(Shape, frozen=True):
    """An object's name and labels."""

    name: str
    labels: dict[str, str] = {}


class Named(Shape, frozen=True):
    """An object of which no more than its name counts."""

    metadata: Labelled


class Owner(Shape, frozen=True):
    """An object to which another belongs."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


_NOBODY = Owner()


class ObjectMeta(Labelled, frozen=True):
    """What any object is known by. One without a uid, which no server writes, has its name for one."""

    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        if not self.uid:
            force_setattr(self, "uid", self.name)

    @property
    def owners(self) -> frozenset[str]:
        """The uids of the objects with which it goes."""
        return frozenset(each.uid for each in self.owner_references if each.uid)

    @property
    def maker(self) -> Owner:
        """The object whose controller made this one; one without uid and name if none did."""
        return next((each for each in self.owner_references if each.controller), _NOBODY)

    @property
    def has_maker(self) -> bool:
        """Whether a controller made this one."""
        return self.maker is not _NOBODY


class NodeSpec(Shape, frozen=True):
    """Whether a node takes pods."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(Shape, frozen=True):
    """What programs a node runs."""

    operating_system: str = "linux"
    architecture: str = ""


class NodeStatus(Shape, frozen=True):
    """What a node has."""

    allocatable: Amounts = {}
    capacity: Amounts = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(Shape, frozen=True):
    """A node."""

    metadata: Labelled
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class EventMeta(Shape, frozen=True):
    """When an event was recorded."""

    creation_timestamp: str | None = None


class Target(Shape, frozen=True):
    """The object that an event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Series(Shape, frozen=True):
    """The repetitions of an event."""

    last_observed_time: str | None = None


class Event(Shape, frozen=True):
    """An event, whichever of its two recorders wrote it: the times of the other are null."""

    metadata: EventMeta = EventMeta()
    involved_object: Target = Target()
    reason: str = ""
    message: str = ""
    event_time: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    series: Series | None = None


class LeaseSpec(Shape, frozen=True):
    """Who has a Lease, and for how long."""

    holder_identity: str = ""
    renew_time: str | None = None
    lease_duration_seconds: Count | None = None


class Lease(Shape, frozen=True):
    """What one process at a time has."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class Assignment(Shape, frozen=True):
    """The flavors that Kueue gives to the pods of a pod set, by the resource."""

    name: str = ""
    flavors: dict[str, str] = {}


class Admission(Shape, frozen=True):
    """What Kueue has admitted."""

    pod_set_assignments: tuple[Assignment, ...] = ()


class WorkloadStatus(Shape, frozen=True):
    """What Kueue has decided."""

    conditions: tuple[ToldCondition, ...] = ()
    admission: Admission = Admission()


class Workload(Shape, frozen=True):
    """What Kueue is asked to admit."""

    metadata: ObjectMeta
    status: WorkloadStatus = WorkloadStatus()


class PriorityClass(Shape, frozen=True):
    """How early what names it is to run: Kubernetes' own, or Kueue's WorkloadPriorityClass."""

    value: int = 0


class FlavorSpec(Shape, frozen=True):
    """What pods that are given a flavor need to reach its nodes."""

    node_labels: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()  # as they are, for the pods


class Flavor(Shape, frozen=True):
    """A kind of nodes of which Kueue counts the quota."""

    spec: FlavorSpec = FlavorSpec()


class DeviceAttribute(Shape, frozen=True):
    """What a driver says of a device; numbers and versions are not read."""

    string: str = ""


class Device(Shape, frozen=True):
    """A device that pods get by a resource claim."""

    attributes: dict[str, DeviceAttribute] = {}


class Pool(Shape, frozen=True):
    """The devices of one driver that are published together; those of the highest generation count."""

    name: str = ""
    generation: int = 0


class SliceSpec(Shape, frozen=True):
    """Some devices of a pool; those of one node, where it is named."""

    driver: str = ""
    pool: Pool = Pool()
    node_name: str = ""
    devices: tuple[Device, ...] = ()


class ResourceSlice(Shape, frozen=True):
    """What a driver offers by resource claims (DRA)."""

    spec: SliceSpec


class Requirements(Shape, frozen=True):
    """Requests and limits of a container, or of a pod as a whole."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(Shape, frozen=True):
    """A container; an init container that is restarted runs beside the others."""

    name: str = ""
    resources: Requirements = Requirements()
    restart_policy: str | None = None


class ClaimSpec(Shape, frozen=True):
    """The volume that a claim asks for, and has."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    resources: Requirements = Requirements()


class ClaimStatus(Shape, frozen=True):
    """How far a claim is."""

    phase: str = ""
    capacity: Amounts = {}
    access_modes: tuple[str, ...] = ()


class Claim(Shape, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeSpec(Shape, frozen=True):
    """What becomes of a volume's data when its claim goes."""

    persistent_volume_reclaim_policy: str = "Retain"


class Volume(Shape, frozen=True):
    """A PersistentVolume."""

    metadata: Labelled
    spec: VolumeSpec = VolumeSpec()


class StorageClass(Shape, frozen=True):
    """A StorageClass; its other fields are of interest to its provisioner alone."""

    metadata: ObjectMeta
    provisioner: str = ""
    reclaim_policy: str = "Delete"


class PodSpec(Shape, frozen=True):
    """Where a pod is, and what it requests: all that placement reads of it."""

    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Amounts | None = None
    resources: Requirements | None = None


class PodMeta(Labelled, frozen=True):
    """A pod's name, namespace and labels."""

    namespace: str = ""


class PodStatus(Shape, frozen=True):
    """Whether a pod has ended, and when its node took it."""

    phase: str = ""
    start_time: str | None = None


class Occupant(Shape, frozen=True):
    """A pod, as far as it takes something of a node."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
