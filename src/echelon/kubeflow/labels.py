"""Kubeflow's labels on the pods of a run that was its job: selectors that people and programs have go on to
find them. Pure.

The pods of one Job have the same labels, but for their completion index. So a Master that is like the Workers
gets a Job of its own where that changes nothing else, and `replica-index` is on a pod that is the only one of
its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from echelon.model.job import Job, Role
from echelon.model.pods.pod import JOB, KUBEFLOW_KIND, NATIVE, NOT_DOWNLOADED
from echelon.values import frozen

LABEL = "training.kubeflow.org"
JOBSET = "jobset.sigs.k8s.io"
SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}
OF_MASTER = ("PyTorchJob", "XGBoostJob")  # the first of their replicas is the Master
TYPES = {"chief": "Chief", "ps": "PS", "evaluator": "Evaluator", "launcher": "Launcher", "worker": "Worker"}
LEADING = ("Master", "Chief")
_MANY = 2  # of a shape that is open: it may be more than one
_OF_MPI_OPERATOR = "kubeflow.org/v2beta1"


@frozen
class Replica:
    """A worker as Kubeflow numbers it: `Master` 0, `Worker` 2."""

    type: str
    index: int
    worker: int


def labels_of(kind: str, name: str, replica: Replica, *, led: bool = False) -> dict[str, str]:
    """The labels of a pod that the training operator would have made. Worker 0 of a JAXJob is its master, and
    that of a TFJob, unless the job is `led` by a Chief.
    """
    first = kind in ("TFJob", "JAXJob") and (replica.type, replica.index) == ("Worker", 0)
    leads = replica.type in LEADING or (first and not led)
    role = {f"{LABEL}/job-role": "master"} if leads else {}
    return {
        f"{LABEL}/operator-name": f"{kind.lower()}-controller",
        f"{LABEL}/job-name": name,
        f"{LABEL}/replica-type": replica.type.lower(),
        f"{LABEL}/replica-index": str(replica.index),
        **role,
    }


def with_kind(job: Job, kind: str, downloads: Sequence[str] = ()) -> Job:
    """The same job, which remembers what kind of job it was, and what its initializers would have downloaded,
    unless its own controller runs them.
    """
    about = {KUBEFLOW_KIND: kind}
    if downloads and job.pod.job_kind != NATIVE:
        about[NOT_DOWNLOADED] = "\n".join(downloads)
    return replace(job, pod=replace(job.pod, annotations={**job.pod.annotations, **about}))


def with_labels(job: Job, document: Mapping[str, Any]) -> Job:
    """The same job with the labels that the controller of this document gives to its pods."""
    kind = str(document["kind"])
    if job.pod.job_kind != JOB:  # its controller gives them
        return job
    if kind == "TrainJob":
        labels = {f"{JOBSET}/jobset-name": job.name, f"{JOBSET}/replicatedjob-name": "node"}
        return replace(job, pod=replace(job.pod, template=_labelled(job.pod.template, labels)))
    specs = document["spec"][SPECS[kind]]
    types = {name.capitalize() for name, spec in specs.items() if spec.get("replicas") != 0}
    lead = next((each for each in LEADING if each in types), None)
    if kind in OF_MASTER and lead and not job.roles and job.workers > 1 and _can_be_split(job):
        chief = Role(name="chief", workers=1, resources=job.resources, procs=job.procs)
        job = replace(job, workers=job.workers - 1, roles=(chief,))
    labels_for = partial(_labels_for, document, job, lead)
    base = job.pod.template
    roles = [
        replace(role, template=_labelled(role.template or base, labels_for(role.name, role.workers)))
        for role in job.roles
    ]
    workers = job.workers if job.shape is None else _MANY
    template = _labelled(base, labels_for("worker", workers))
    return replace(job, roles=tuple(roles), pod=replace(job.pod, template=template))


def _labels_for(
    document: Mapping[str, Any], job: Job, lead: str | None, role: str, workers: int
) -> dict[str, str]:
    """The labels that the pods of a role share. `lead` is the type of the job's first replica, if it has one:
    without a role of its own it is the first of the workers.
    """
    joined = lead is not None and not job.roles
    leads = lead is not None and (role == "chief" or (joined and workers == 1))
    replica_type = str(lead) if leads else TYPES[role]
    replica = Replica(type=replica_type, index=0, worker=0)
    found = labels_of(str(document["kind"]), job.name, replica, led=lead is not None)
    if workers > 1:
        del found[f"{LABEL}/replica-index"]
        if joined:
            del found[f"{LABEL}/replica-type"]
    if document["apiVersion"] == _OF_MPI_OPERATOR:
        found |= {f"{LABEL}/operator-name": "mpi-operator", f"{LABEL}/job-role": role}
    elif workers > 1:
        found.pop(f"{LABEL}/job-role", None)
    return found


def _can_be_split(job: Job) -> bool:
    """Whether another Job for the Master changes nothing else: Kueue admits one Job by itself, and an open
    shape has no number of workers yet.
    """
    return job.pod.queue is None and job.shape is None


def _labelled(template: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}
