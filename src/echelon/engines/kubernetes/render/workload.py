"""What Kueue is asked for a run of several Jobs: one Workload, with a pod set for each Job. Pure.

Kueue admits a Job by itself; a gang of several needs all of them. So its Jobs carry no label of Kueue's, and
wait until the Workload is admitted as a whole. What Kueue fills in for a Job, such as its priority, must be
said in this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.model.run import Record

Object = dict[str, Any]
# What decides on which flavors pods can be, and how early.
_ASKED = ("nodeSelector", "affinity", "tolerations", "priorityClassName")


@frozen
class Priority:
    """A class by which Kueue orders what waits: one of its own, or Kubernetes' PriorityClass of the pods."""

    name: str
    value: int
    of_pods: bool = False


def workload_object(record: Record, jobs: Sequence[Object]) -> Object | None:
    """The Workload of a run whose Jobs are these; None of one that Kueue admits by its Job's label, or not at
    all.
    """
    queue = record.job.pod.queue
    if queue is None or len(jobs) < 2:
        return None
    run = record.ref.name
    return {
        "apiVersion": names.KUEUE_VERSION,
        "kind": "Workload",
        "metadata": names.metadata(run, record.owner, run, names.WORKLOAD, record.job),
        "spec": {"queueName": queue, "podSets": [_pod_set(job) for job in jobs]},
    }


def class_of(workload: Object) -> tuple[str, bool]:
    """The name of a Workload's priority class, "" for none, and whether it is that of the pods: the label
    counts before what the pods say, as it does for Jobs.
    """
    own = workload["metadata"]["labels"].get(names.KUEUE_PRIORITY)
    pods = (each["template"]["spec"].get("priorityClassName") for each in workload["spec"]["podSets"])
    return (own, False) if own else (next(filter(None, pods), ""), True)


def with_priority(workload: Object, priority: Priority) -> Object:
    """The Workload with its priority, as its version of the API says it."""
    group = "scheduling.k8s.io" if priority.of_pods else "kueue.x-k8s.io"
    kind = "PriorityClass" if priority.of_pods else "WorkloadPriorityClass"
    said: Object = {"priorityClassRef": {"group": group, "kind": kind, "name": priority.name}}
    if workload["apiVersion"] == names.KUEUE_OLD_VERSION:
        said = {"priorityClassName": priority.name, "priorityClassSource": f"{group}/{kind.lower()}"}
    return {**workload, "spec": {**workload["spec"], "priority": priority.value, **said}}


def _pod_set(job: Object) -> Object:
    pod = job["spec"]["template"]["spec"]
    containers = [
        {"name": each["name"], "image": each["image"], "resources": each.get("resources") or {}}
        for each in pod["containers"]
    ]
    asked = {field: pod[field] for field in _ASKED if pod.get(field)}
    return {
        "name": job["metadata"]["name"],
        "count": job["spec"]["completions"],
        "template": {"spec": {"restartPolicy": "Never", "containers": containers, **asked}},
    }
