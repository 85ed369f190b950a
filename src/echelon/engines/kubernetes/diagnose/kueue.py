"""Why Kueue has not admitted a run: what its Workload says. Pure.

Kueue makes a Workload for every job that carries its label, and reports on it in conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import quote
from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.diagnose.trouble import Trouble
from echelon.engines.kubernetes.fields import one_line
from echelon.engines.kubernetes.shapes import Workload, condition
from echelon.engines.kubernetes.suspended import is_suspended

Object = Mapping[str, Any]
_ENABLED = {
    kind: f"Kueue sees {kind}s if its configuration has the integration kubeflow.org/{kind.lower()}"
    for kind in ("PyTorchJob", "TFJob")
}


def queue_of(job: Object) -> str:
    """The queue of Kueue's that a Job is in; "" for none."""
    return str((job["metadata"].get("labels") or {}).get(names.KUEUE_QUEUE, ""))


def waits_in(jobs: Iterable[Object]) -> str:
    """The queue of Kueue's in which the first Job that is not admitted waits; "" where none does."""
    waiting = (job for job in jobs if is_suspended(job))
    return next(filter(None, map(queue_of, waiting)), "")


def find_waiting(jobs: Iterable[Object], workloads: Iterable[Workload]) -> Trouble | None:
    """The first Job that waits for Kueue, and why; None if none does."""
    for job in jobs:
        queue = queue_of(job)
        if not queue or not is_suspended(job):
            continue
        mine = workloads_of(job, workloads)
        unseen = _ENABLED.get(str(job.get("kind"))) if not mine else None
        return Trouble(
            worker=None,
            kind="queue",
            sentence=f"queued in Kueue's queue {queue}: {reason_of(mine)}",
            hint=unseen or f"kubectl describe localqueue {quote(queue)}",
        )
    return None


def workloads_of(job: Object, workloads: Iterable[Workload]) -> list[Workload]:
    """Those that Kueue has made for a job."""
    uid = str(job["metadata"].get("uid") or "")
    return [each for each in workloads if uid in each.metadata.owners]


def reason_of(workloads: Iterable[Workload]) -> str:
    """The last thing that Kueue decided of them, against the run."""
    for workload in workloads:
        for name in ("Evicted", "QuotaReserved", "Admitted"):
            found = condition(workload.status.conditions, name)
            if found is not None and (found.status == "True") == (name == "Evicted"):
                return one_line(found.message) or found.reason or "not admitted"
        return "not decided yet"
    return "Kueue has not seen it yet"
