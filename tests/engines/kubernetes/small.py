"""Objects as small as they can be, for what no real one shows: odd fields, rare moments."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
from testbed.kubectl import Object
from tests.engines.kubernetes.situations import run_job
from tests.engines.kubernetes.typed import as_pod

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored, read, read_moment, read_waits
from echelon.model.job import Job
from echelon.model.run import Record, RunRef

RECORD = Record(
    ref=RunRef(engine="k8s", name="demo"),
    job=Job(name="demo", script="train.py", workers=2),
    created=100.0,
    owner="ann",
    results="runs/demo",
)


def record_object(
    *,
    stop: object = None,
    end: object = None,
    started: bool = True,
    schema: str | None = "2",
    **notes: object,
) -> Object:
    """A record as the API server has it, which goes with its Job if the run has `started`; what is no text
    is written as JSON.
    """
    given = {"stop": stop, **notes}
    annotations = {f"echelon.dev/{name}": _text(value) for name, value in given.items() if value}
    if schema is not None:
        annotations["echelon.dev/schema"] = schema
    run = RECORD if schema == "1" else replace(RECORD, results="")
    data = {"record.json": msgspec.json.encode(run).decode()}
    if end:
        data["finished.json"] = _text(end)
    owners = [{"kind": "Job", "name": "demo", "uid": "1"}] if started else []
    about = {"name": "demo", "uid": "the-record", "annotations": annotations, "ownerReferences": owners}
    return {"kind": "ConfigMap", "metadata": about, "data": data}


def stored(*, queued: object = None, admitted: object = None, tried: object = None, **about: Any) -> Stored:
    """The record of a run, read, with what its Jobs say."""
    return replace(
        read(record_object(**about), RECORD.ref),
        queued=read_waits(_text(queued) if queued else None),
        admitted=read_moment(admitted),
        tried=read_moment(tried),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def pod_object(
    worker: int = 0,
    *,
    state: Object | None = None,
    status: Object | None = None,
    first: int = 0,
    made: str = "2026-01-01T00:00:00Z",
    name: str | None = None,
    spec: Object | None = None,
    container: Object | None = None,
    **about: Any,
) -> Object:
    """A pod as small as it can be. `spec` and `container` change those."""
    template = run_job("demo", "image", first=first)["spec"]["template"]
    (made_of,) = template["spec"]["containers"]
    statuses = [{"name": names.CONTAINER, "state": state}] if state is not None else []
    return {
        "kind": "Pod",
        "metadata": {
            "name": name or f"demo-{worker}-abcde",
            "annotations": {names.COMPLETION_INDEX: str(worker - first)},
            "creationTimestamp": made,
            **about,
        },
        "spec": {
            **template["spec"],
            "nodeName": "node-a",
            "containers": [{**made_of, **(container or {})}],
            **(spec or {}),
        },
        "status": {"phase": "Running", "containerStatuses": statuses, **(status or {})},
    }


def pod(worker: int = 0, **about: Any) -> Pod:
    """The same as it is read."""
    return as_pod(pod_object(worker, **about))


def ended(code: int, *, reason: str = "Error", message: str = "", at: str = "2026-01-01T00:01:00Z") -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": at}}


def job(*conditions: str, reason: str = "", workers: int = 2, **spec: Any) -> Object:
    found = [
        {
            "type": name,
            "status": "True",
            "reason": reason,
            "message": "",
            "lastTransitionTime": "2026-01-01T00:02:00Z",
        }
        for name in conditions
    ]
    made = run_job("demo", "image", workers=workers, spec=spec)
    return {**made, "status": {"conditions": found}}


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:10Z"}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}


def own_job(*conditions: str, **more: Any) -> Object:
    """A Job that the record owns."""
    made = job(*conditions, **more)
    made["metadata"]["uid"] = "1"  # as the record's owner has it
    return made


def view(*, jobs: list[Object] | None = None, pods: list[Pod] | None = None, **about: Any) -> View:
    """A run with one Job of its own, unless others are given."""
    found = [own_job()] if jobs is None else jobs
    return View(stored=stored(**about), jobs=found, pods=pods or [])
