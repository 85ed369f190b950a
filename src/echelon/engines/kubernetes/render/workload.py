"""What Kueue is asked for a run of several Jobs: one Workload, with a pod set for each Job. Pure.

Kueue admits a Job by itself; a gang of several needs all of them. So its Jobs carry no label of Kueue's, and
wait until the Workload is admitted as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names

if TYPE_CHECKING:
    from echelon.model.run import Record

Object = dict[str, Any]
_ASKED = ("nodeSelector", "affinity", "tolerations")  # what decides on which flavors pods can be


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
