"""Kubeflow's kinds of jobs: where the API serves them, and which pods are theirs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import below, whole_number
from echelon.engines.kubernetes.ownership.kubeflow_labels import JOBSET, PREFIX
from echelon.engines.kubernetes.pods import Pod
from echelon.errors import InvalidJob
from echelon.values import frozen

_SIDE = ("istio-proxy", "istio-init")
_MOST = 10_000  # workers; what says more is not believed
_ORDER = ("launcher", "master", "chief", "worker", "node", "ps", "evaluator")


@frozen
class Kind:
    """A kind of job: its name, its resources in the API (the first that is served counts), the framework that
    its pods run, whether its controller says in a condition that it is restarting.
    """

    kind: str
    resources: tuple[str, ...]
    framework: str
    says_restarting: bool = True

    @property
    def word(self) -> str:
        """As in an address: pytorchjob."""
        return self.kind.lower()


def _v1(kind: str, framework: str) -> Kind:
    return Kind(kind=kind, resources=(f"{kind.lower()}s.v1.kubeflow.org",), framework=framework)


KINDS = {
    each.word: each
    for each in (
        _v1("PyTorchJob", "torchrun"),
        _v1("TFJob", "tensorflow"),
        Kind(
            kind="MPIJob",
            resources=("mpijobs.v2beta1.kubeflow.org", "mpijobs.v1.kubeflow.org"),
            framework="mpi",
            says_restarting=False,
        ),
        _v1("XGBoostJob", "xgboost"),
        _v1("PaddleJob", "plain"),
        _v1("JAXJob", "jax"),
        Kind(
            kind="TrainJob",
            resources=("trainjobs.v1alpha1.trainer.kubeflow.org",),
            framework="torchrun",
            says_restarting=False,
        ),
    )
}


@frozen
class Address:
    """A job by its kind and name."""

    kind: Kind
    name: str


def parse_address(name: str) -> Address:
    """Read KIND/NAME, the last parts of an address."""
    word, _, rest = name.partition("/")
    if word not in KINDS:
        hint = f"for example k8s://NAMESPACE/pytorchjob/NAME; there are {', '.join(KINDS)}"
        raise InvalidJob("run", name, "names no kind of job", hint=hint)
    return Address(kind=KINDS[word], name=rest)


def labels_of(kind: Kind) -> tuple[tuple[str, str], ...]:
    """The labels by which pods name the job of a kind that they are of, and what they carry beside; the first
    that any pod of a job has counts.
    """
    if kind.word == "trainjob":
        return ((f"{JOBSET}jobset-name", ""),)
    return ((f"{PREFIX}job-name", ""), ("job-name", "group-name=kubeflow.org"))


def selector(label: tuple[str, str], name: str = "") -> str:
    """The selector of the pods that have such a label: of all, or of the job of that name."""
    named, beside = label
    return ",".join(filter(None, (f"{named}={name}" if name else named, beside)))


def role_of(pod: Pod) -> str:
    """The replica type of a pod, in lower case."""
    labels = pod.metadata.labels
    for name in (f"{PREFIX}replica-type", "replica-type", f"{JOBSET}replicatedjob-name", f"{PREFIX}job-role"):
        if name in labels:
            return labels[name].lower()
    return "worker"


def index_of(pod: Pod, job: Mapping[str, Any]) -> int:
    """The number of a pod among those of its type. mpi-operator numbers workers from 1 where the launcher is
    one of them.
    """
    labels = pod.metadata.labels
    known = (f"{PREFIX}replica-index", "replica-index", names.COMPLETION_INDEX)
    found = (whole_number(labels.get(name)) for name in known)
    index = next((index for index in found if index is not None and index < _MOST), 0)
    after_launcher = below(job, "spec").get("runLauncherAsWorker") is True and role_of(pod) == "worker"
    return max(0, index - 1) if after_launcher else index


def groups_of(job: Mapping[str, Any], pods: Sequence[Pod]) -> list[tuple[str, int]]:
    """The replica types of a job and how many there are of each, the one that leads first."""
    spec = below(job, "spec")
    found: dict[str, int] = {}
    specs = next((value for key, value in spec.items() if key.endswith("ReplicaSpecs")), None)
    if isinstance(specs, Mapping):
        for name, each in specs.items():
            found[str(name).lower()] = _count(each.get("replicas", 1) if isinstance(each, Mapping) else 1)
    elif isinstance(trainer := spec.get("trainer"), Mapping):
        found["node"] = _count(trainer.get("numNodes", 1))
    for pod in pods:  # a TrainJob's runtime may decide, and an elastic job changes
        role = role_of(pod)
        found[role] = max(found.get(role, 0), index_of(pod, job) + 1)
    ranked = sorted(found.items(), key=lambda each: _ORDER.index(each[0]) if each[0] in _ORDER else 99)
    return [(role, count) for role, count in ranked if count]


def container_of(pod: Pod) -> str:
    """The container of a pod that trains: the first that is no sidecar."""
    listed = [each.name for each in pod.spec.containers]
    known = [name for name in listed if name in ("pytorch", "tensorflow", "node", "xgboost", "paddle", "jax")]
    return next(iter(known or [name for name in listed if name not in _SIDE] or listed), names.CONTAINER)


def _count(value: object) -> int:
    found = whole_number(value)
    return min(found, _MOST) if found is not None else 1
