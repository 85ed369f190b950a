"""The labels that Kubeflow's controllers give to their pods. Pure.

The first generation's controllers share their labels; those of older releases have no prefix. mpi-operator
labels roles, and Trainer's pods are a JobSet's."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "training.kubeflow.org/"
JOBSET = "jobset.sigs.k8s.io/"
_OPERATORS = {
    "mpi-operator": "mpijob",
    **{
        f"{word}-controller": word
        for word in ("pytorchjob", "tfjob", "mpijob", "xgboostjob", "paddlejob", "jaxjob")
    },
}


def job_of(labels: Mapping[str, str]) -> str | None:
    """The job that a pod is of, KIND/NAME as in an address; None for a pod of no such job. Which TrainJob a
    JobSet was made for its pods do not say.
    """
    for prefix, operator in ((PREFIX, "operator-name"), ("", "controller-name")):
        kind, name = _OPERATORS.get(labels.get(prefix + operator, "")), labels.get(f"{prefix}job-name")
        if kind and name:
            return f"{kind}/{name}"
    name = labels.get(f"{JOBSET}jobset-name")
    return f"jobset/{name}" if name else None
