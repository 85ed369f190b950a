"""A run as the job that Kubeflow's client would show: its replicas, status and conditions; and why it
failed, for a user who has only an exception to read: the rank, its error and the line of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from echelon.kubeflow.labels import OF_MASTER, SPECS, TYPES, Replica
from echelon.model.job import Job
from echelon.model.pods.pod import KUBEFLOW_KIND
from echelon.model.run import Record
from echelon.model.status import Status, WorkerState, WorkerStatus

_RANK = re.compile(r"^\[rank ?\d+\]:")  # before every line of a traceback that torch writes
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_BEGIN = "Traceback (most recent call last)"
_GENERATED = ".echelon"  # a function's own script: its lines are not those of the notebook
_LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<frozen ")
CONTAINERS = {
    "PyTorchJob": "pytorch",
    "TFJob": "tensorflow",
    "JAXJob": "jax",
    "XGBoostJob": "xgboost",
    "MPIJob": "mpi",
}
_BY_FRAMEWORK = {
    "tensorflow": "TFJob",
    "jax": "JAXJob",
    "xgboost": "XGBoostJob",
    "mpi": "MPIJob",
    "horovod": "MPIJob",
}
_PHASES: Mapping[WorkerState, str] = {
    "waiting": "Pending",
    "starting": "Pending",
    "running": "Running",
    "done": "Succeeded",
}


def why_failed(status: Status) -> str:
    """The reason, and the line that raised where the last lines of the rank show it."""
    reason = status.reason or status.state
    cause = status.root_cause
    line = None if cause is None else line_of(cause.tail)
    return f"{reason}, {line}" if line else reason


def line_of(tail: Sequence[str]) -> str | None:
    """The innermost line of the user's own in the last traceback of some lines of output."""
    lines = [_RANK.sub("", line) for line in tail]
    begins = [number for number, line in enumerate(lines) if _BEGIN in line]
    lines = lines[begins[-1] :] if begins else lines
    frames = [(found, number) for number, line in enumerate(lines) if (found := _FRAME.match(line))]
    if not frames:
        return None
    own = [each for each in frames if not _LIBRARIES.search(each[0]["file"])]
    found, number = (own or frames)[-1]
    path = PurePath(found["file"])
    where = "" if _GENERATED in path.parts else f"line {found['line']} of {path.name}, "
    text = lines[number + 1].strip() if number + 1 < len(lines) else ""
    return f"{where}in {found['name'] or path.name}: {text}".removesuffix(": ")


def kind_of(job: Job) -> str:
    """The kind of job that a run was created as, else the one that its framework would have."""
    kind = job.pod.annotations.get(KUBEFLOW_KIND)
    return kind if kind in SPECS else _BY_FRAMEWORK.get(job.framework, "PyTorchJob")


def replicas_of(kind: str, roles: Sequence[str]) -> list[Replica]:
    """Kubeflow's numbers for workers whose roles these are, in order. Of a PyTorchJob and an XGBoostJob the
    first is the Master.
    """
    count: dict[str, int] = {}
    found = []
    for worker, role in enumerate(roles):
        name = TYPES.get(role, "Worker")
        if kind in OF_MASTER:
            name = "Worker" if worker else "Master"
        index = count.get(name, 0)
        count[name] = index + 1
        found.append(Replica(type=name, index=index, worker=worker))
    return found


def describe_job(record: Record, status: Status, *, namespace: str) -> dict[str, Any]:
    """The run as a document of its kind."""
    job = record.job
    kind = kind_of(job)
    replicas = replicas_of(kind, [each.role for each in status.workers])
    specs = {
        name: {
            "replicas": sum(each.type == name for each in replicas),
            "restartPolicy": "OnFailure" if job.restarts else "Never",
            "template": {"spec": {"containers": [_container(kind, job)]}},
        }
        for name in dict.fromkeys(each.type for each in replicas)
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {
            "name": record.ref.name,
            "namespace": namespace,
            "creationTimestamp": _time(status.created),
            "labels": dict(job.pod.labels),
            "annotations": dict(job.pod.annotations),
        },
        "spec": {
            "runPolicy": {"backoffLimit": job.restarts, "suspend": status.state == "stopped"},
            SPECS[kind]: specs,
        },
        "status": {
            "conditions": list(conditions_of(kind, status)),
            "replicaStatuses": _replica_statuses(replicas, status.workers),
            "startTime": _time(status.started),
            "completionTime": _time(status.ended),
        },
    }


def conditions_shown(kind: str, status: Status) -> list[dict[str, Any]]:
    """The conditions that `kubectl get` would show of a job of this kind; Trainer has few."""
    found = list(conditions_of(kind, status))
    if kind != "TrainJob":
        return found
    words = {"Suspended": "Suspended", "Succeeded": "Complete", "Failed": "Failed"}
    return [
        {**each, "type": words[each["type"]], "reason": words[each["type"]]}
        for each in found
        if each["type"] in words
    ]


def conditions_of(kind: str, status: Status) -> Iterator[dict[str, Any]]:
    """Kubeflow's conditions. One that held and does not any more stays, with status False."""
    about = f"{kind} {status.name}"
    yield _condition(kind, "Created", f"{about} is created.", status.created)
    if status.state == "queued":
        yield _condition(kind, "Suspended", f"{about} is suspended: {status.reason}.", status.created)
    over = status.ended is not None
    if status.restarts:
        yield _condition(
            kind,
            "Restarting",
            f"{about} is restarting: {status.reason or 'a worker failed'}.",
            status.started,
            holds=status.state == "restarting",
        )
    if status.training_since is not None or status.state in ("running", "succeeded"):
        yield _condition(
            kind,
            "Running",
            f"{about} is running.",
            status.started,
            holds=not over and status.state == "running",
        )
    if status.state == "succeeded":
        without = f", without {', '.join(status.not_downloaded)}" if status.not_downloaded else ""
        yield _condition(kind, "Succeeded", f"{about} successfully completed{without}.", status.ended)
    elif status.state == "stopped":
        yield _condition(kind, "Suspended", f"{about} is suspended: {status.reason}.", status.ended)
    elif over:
        yield _condition(kind, "Failed", f"{about} is failed: {why_failed(status)}.", status.ended)


def pod_name(name: str, replica: Replica) -> str:
    """As Kubeflow's controller names a pod."""
    return f"{name}-{replica.type.lower()}-{replica.index}"


def describe_worker(
    kind: str, name: str, namespace: str, labels: Mapping[str, str], worker: WorkerStatus
) -> dict[str, Any]:
    """A worker that is not a pod, as if it were one: its name is the one that Kubeflow's pod would have."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
        },
        "spec": {"nodeName": worker.node, "containers": [{"name": CONTAINERS[kind]}]},
        "status": {"phase": _PHASES.get(worker.state, "Failed")},
    }


def _condition(kind: str, name: str, message: str, at: float | None, *, holds: bool = True) -> dict[str, Any]:
    return {
        "type": name,
        "status": "True" if holds else "False",
        "reason": f"{kind}{name}",
        "message": message,
        "lastTransitionTime": _time(at),
        "lastUpdateTime": _time(at),
    }


def _replica_statuses(
    replicas: Sequence[Replica], workers: Sequence[WorkerStatus]
) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for replica, worker in zip(replicas, workers, strict=True):
        phase = _PHASES.get(worker.state, "Failed")
        part = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}.get(phase)
        counts = found.setdefault(replica.type, {})
        if part is not None:
            counts[part] = counts.get(part, 0) + 1
    return found


def _container(kind: str, job: Job) -> dict[str, Any]:
    return {
        "name": CONTAINERS[kind],
        "image": job.pod.image,
        "command": [*job.command] or None,
        "args": [*job.args] or None,
        "env": [{"name": name, "value": value} for name, value in job.env.items()],
    }


def _time(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)
