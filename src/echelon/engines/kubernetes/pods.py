"""A pod, as its worker's state, its troubles and its log need it. Of all pods of a cluster, placement reads
less (`shapes.Occupant`)."""

from __future__ import annotations

from msgspec import field

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.shapes import Count, DatedCondition, Shape


class Variable(Shape, frozen=True):
    """A variable of a container's environment; one that is taken from elsewhere has no value here."""

    name: str
    value: str = ""


class Container(shapes.Container, frozen=True):
    """A container, and what runs in it."""

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()


class Reference(Shape, frozen=True):
    """Something that is named: a pull secret, which may lack its name, or a scheduling gate."""

    name: str = ""


class ClaimSource(Shape, frozen=True):
    """A volume that is claimed."""

    claim_name: str


class NfsSource(Shape, frozen=True):
    """A volume that is an NFS server's."""

    server: str = ""
    path: str = ""


class PathSource(Shape, frozen=True):
    """A volume that is a path of the node."""

    path: str = ""


class ConfigMapSource(Shape, frozen=True):
    """A volume that is made from a ConfigMap."""

    name: str = ""


class SecretSource(Shape, frozen=True):
    """A volume that is made from a Secret."""

    secret_name: str = ""


class Volume(Shape, frozen=True):
    """A volume of a pod."""

    name: str
    persistent_volume_claim: ClaimSource | None = None
    nfs: NfsSource | None = None
    host_path: PathSource | None = None
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None


class Toleration(Shape, frozen=True):
    """A taint, or several, that a pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Expression(Shape, frozen=True):
    """What a node's label must be."""

    key: str
    operator: str = ""
    values: tuple[str, ...] = ()


class Term(Shape, frozen=True):
    """Expressions that a node must match, all of them."""

    match_expressions: tuple[Expression, ...] = ()


class Terms(Shape, frozen=True):
    """Terms of which a node must match one."""

    node_selector_terms: tuple[Term, ...] = ()


class NodeAffinity(Shape, frozen=True):
    """Which nodes a pod may be on."""

    required_during_scheduling_ignored_during_execution: Terms = Terms()


class Affinity(Shape, frozen=True):
    """Where a pod may be."""

    node_affinity: NodeAffinity = NodeAffinity()


class Spec(Shape, frozen=True):
    """What a pod consists of and asks for, and its node once it has one."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    resources: shapes.Requirements = shapes.Requirements()
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[Reference, ...] = ()
    image_pull_secrets: tuple[Reference, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity = Affinity()
    restart_policy: str = ""


class Waiting(Shape, frozen=True):
    """Why a container does not run."""

    reason: str = ""
    message: str = ""


class Running(Shape, frozen=True):
    """That a container runs."""


class Terminated(Shape, frozen=True):
    """How a container ended."""

    exit_code: Count = 0
    signal: Count = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerState(Shape, frozen=True):
    """One of three, or none, before the kubelet has taken the pod up."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Shape, frozen=True):
    """What the kubelet reports of a container."""

    name: str
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    restart_count: Count = 0


class Status(Shape, frozen=True):
    """What became of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    pod_ip: str = field(name="podIP", default="")
    conditions: tuple[DatedCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def condition(self, name: str) -> DatedCondition | None:
        """The condition of this type, whatever its status."""
        return shapes.condition(self.conditions, name)


class Metadata(shapes.ObjectMeta, frozen=True):
    """What a pod is known by, and what keeps it from being removed."""

    generate_name: str = ""
    finalizers: tuple[str, ...] = ()

    @property
    def leaves(self) -> bool:
        """Whether the pod is being deleted."""
        return bool(self.deletion_timestamp)


class Pod(Shape, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()
