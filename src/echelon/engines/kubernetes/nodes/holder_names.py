"""What the holder of a GPU is called: a run, a job of Kubeflow's by its address, else a pod. Pure."""

from __future__ import annotations

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.ownership.kubeflow_labels import job_of


def holder_of(about: shapes.PodMeta, me: str) -> str:
    """The holder that a pod is, or is a part of; `me` is the user's namespace."""
    run = about.labels.get(names.RUN, "")
    if run:
        return run_name(about.namespace, run, me)
    job = job_of(about.labels)
    return f"{about.namespace}/{about.name}" if job is None else f"k8s://{about.namespace}/{job}"


def run_name(namespace: str, run: str, me: str) -> str:
    """A run of echelon's, with its namespace unless it is the user's."""
    return run if namespace == me else f"{namespace}/{run}"
