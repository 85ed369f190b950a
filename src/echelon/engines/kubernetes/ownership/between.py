"""The objects that Kubeflow's controllers make between a job and its pods.

Trainer makes a JobSet of a TrainJob, and JobSet's controller makes Jobs of that; mpi-operator makes the
Launcher's Job of an MPIJob. Such a pod names its Job alone, and anybody may call a Job so: whose the pod is,
the uids of owners tell, from the pod up to the job. What is between is read with one list for each kind,
whatever the number of jobs and pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.engines.kubernetes.ownership.kubeflow_labels import JOBSET
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.shapes import Count, ObjectMeta, Shape
from echelon.errors import Denied
from echelon.values import frozen

JOBSETS = "jobsets.v1alpha2.jobset.x-k8s.io"
Pair = tuple[str, str]  # an object's name and uid

# What the controllers make of a kind's objects, one of the other, and the label that has the job's name; a
# JobSet has that name itself.
_TIERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "mpijob": (("Job", "app"),),
    "trainjob": ((JOBSETS, ""), ("Job", f"{JOBSET}jobset-name")),
}
_NAMED = 50  # jobs that a selector names one by one; with more, all are asked for
_LABEL = 63  # characters that the value of a label may have


class MadeStatus(Shape, frozen=True):
    """How often a JobSet has started over."""

    restarts: Count = 0


class Made(Shape, frozen=True):
    """An object that a controller made of another."""

    metadata: ObjectMeta
    status: MadeStatus = MadeStatus()


@frozen
class Between:
    """Objects between jobs and pods, tier by tier; none where nothing is between. Pure."""

    tiers: tuple[tuple[Made, ...], ...] = ()

    def makers(self, jobs: Iterable[Pair]) -> frozenset[Pair]:
        """What makes the pods of jobs: these themselves, and the Jobs that were made of them."""
        known = frozenset(jobs)
        found = known
        for tier in self.tiers:
            found = frozenset(_pair(each.metadata) for each in tier if maker_pair(each) in found)
        return known | found

    def refutes(self, pod: Pod) -> bool:
        """Whether a Job is there that has the name of the pod's maker, and it is known whose it is. Of one
        whose own maker is gone, that is not known.
        """
        name = pod.metadata.maker.name
        jobs = self.tiers[-1] if self.tiers else ()
        above = self.tiers[-2] if len(self.tiers) > 1 else None
        return any(_is_traced(job, above) for job in jobs if job.metadata.name == name)


def _is_traced(job: Made, above: Sequence[Made] | None) -> bool:
    maker = maker_pair(job)
    return above is None or not maker[1] or maker in {_pair(each.metadata) for each in above}


def maker_pair(obj: Pod | Made) -> Pair:
    """The name and uid of the object whose controller made another; both empty if none did."""
    maker = obj.metadata.maker
    return maker.name, maker.uid


def pairs_of(objects: Iterable[Mapping[str, Any]]) -> frozenset[Pair]:
    """What objects are known by as makers."""
    abouts = (each["metadata"] for each in objects)
    return frozenset((str(about.get("name") or ""), str(about.get("uid") or "")) for about in abouts)


def have_between(kind: str, pods: Iterable[Pod]) -> bool:
    """Whether pods of a kind of job, given by its word, may have been made by something in between."""
    return kind in _TIERS and any(pod.metadata.maker.kind == "Job" for pod in pods)


def read_between(api: Api, kind: str, names: Collection[str]) -> Between | None:
    """What is between the jobs of a kind with these names and their pods; None where that cannot be read,
    since the user lacks a right, or the cluster the kind.
    """
    found: list[tuple[Made, ...]] = []
    try:
        for resource, label in _TIERS.get(kind, ()):
            one = f"metadata.name={next(iter(names))}" if not label and len(names) == 1 else ""
            found.append(tuple(api.list_shapes(resource, Made, selector=_selector(label, names), fields=one)))
    except (Denied, NotThere):
        return None
    return Between(tiers=tuple(found))


def _selector(label: str, names: Collection[str]) -> str:
    if not label or len(names) > _NAMED or any(len(name) > _LABEL for name in names):
        return label
    return f"{label} in ({','.join(sorted(names))})"


def _pair(about: ObjectMeta) -> Pair:
    return about.name, about.uid
