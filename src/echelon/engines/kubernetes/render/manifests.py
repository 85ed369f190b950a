"""A run as Kubernetes objects: values in, dictionaries out, nothing asked and nothing sent.

`record_object` and `shipped_objects` are made when a run is recorded, `started_objects` when it has its plan;
`render` is all of them for the dry run. The engine creates them, and ties them together by owner references:
what is shipped belongs to the record, the record to the Jobs, so that nothing outlives those."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from echelon.agent.task import NO_LEADER, RUN_OVER
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.render.payload import Cargo, Piece, Shipped, content, layout, weigh
from echelon.engines.kubernetes.render.pod import planned_nodes, pod_template
from echelon.engines.kubernetes.render.task import pod_task
from echelon.engines.kubernetes.render.volumes import new_claim, results_claim
from echelon.errors import StateTrouble
from echelon.model.plan import Plan
from echelon.model.run import SCHEMA, Record
from echelon.model.world import worker_count

Object = dict[str, Any]

MASK = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What is made when a run gets its place: a claim that outlives it, its Jobs, and the agents' task."""

    task: Object
    claims: list[Object]
    jobs: list[Object]


def record_object(record: Record, shipped: Shipped) -> Object:
    """The ConfigMap that is the run: it reserves the name, and tells anybody what was wanted."""
    written = msgspec.json.encode(replace(record, plan=None)).decode()
    about = _about(record, record.ref.name, names.RECORD)
    about["annotations"][names.SHIPPED] = msgspec.json.encode(shipped).decode()
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {names.RECORD_KEY: written}}


def read_shipped(record: Object) -> Shipped:
    """What a record says that the run was shipped."""
    text = (record["metadata"].get("annotations") or {}).get(names.SHIPPED, "{}")
    try:
        return msgspec.json.decode(text, type=Shipped)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        name = record["metadata"]["name"]
        hint = f"`echelon rm {name}` forgets this run"
        raise StateTrouble(f"what run {name!r} was shipped cannot be read: {error}", hint=hint) from error


def shipped_objects(record: Record, cargo: Cargo, *, gang: str, secrets: Mapping[str, str]) -> list[Object]:
    """What belongs to the record and does not depend on where the run will be."""
    return [*bundle_objects(record, cargo), secret_object(record, gang, secrets), service_object(record)]


def bundle_objects(record: Record, cargo: Cargo) -> list[Object]:
    """The ConfigMaps in which agent and code travel."""
    found = []
    for number, pieces in enumerate(layout(weigh(cargo))):
        made = _bundle(record, number)
        made["binaryData"] = {piece.key: base64.b64encode(content(cargo, piece)).decode() for piece in pieces}
        found.append(made)
    return found


def secret_object(record: Record, gang: str, secrets: Mapping[str, str]) -> Object:
    """The secret that the run's agents know each other by, and the user's own."""
    values = {names.secret_key(name): value for name, value in secrets.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _about(record, record.ref.name, names.SECRET),
        "type": "Opaque",
        "stringData": {names.GANG_KEY: gang, **values},
    }


def service_object(record: Record) -> Object:
    """What the leader is called by, from before it is there.

    Not headless: the names of pods come and go with them, and whoever asks too early is told for seconds
    that there is none. This name and its address stay."""
    name = record.ref.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _about(record, name, names.SERVICE),
        "spec": {
            "publishNotReadyAddresses": True,
            "selector": {names.JOB_NAME: name, names.COMPLETION_INDEX: "0"},
            "ports": [{"name": "gang", "port": names.PORT, "protocol": "TCP"}],
        },
    }


def started_objects(
    record: Record, plan: Plan, shipped: Shipped, *, security_level: str = "", suspend: bool = False
) -> Started:
    """The Jobs of a run, the claim for its results if one is wanted, and its agents' task."""
    claim = claim_object(record, plan)
    return Started(
        task=pod_task(record, plan, shipped),
        claims=[claim] if claim is not None else [],
        jobs=job_objects(record, plan, shipped, security_level=security_level, suspend=suspend),
    )


def job_objects(
    record: Record, plan: Plan, shipped: Shipped, *, security_level: str = "", suspend: bool = False
) -> list[Object]:
    """One Indexed Job for each group of equal workers."""
    job_names = names.job_names(plan.run, plan.world)
    found = []
    for number, first_worker in enumerate(names.first_workers(plan.world)):
        group = plan.world.groups[number]
        about = _about(record, job_names[number], names.WORKER)
        about["labels"][names.ROLE] = group.role
        about["annotations"][names.FIRST_WORKER] = str(first_worker)
        nodes = planned_nodes(plan, group, first_worker)
        if any(nodes):
            about["annotations"][names.NODES] = json.dumps(nodes)
        spec = {
            "completionMode": "Indexed",
            "completions": group.workers,
            "parallelism": group.workers,
            "suspend": suspend,
            # The agents count restarts; the Job only must not give up before they do.
            "backoffLimitPerIndex": plan.restarts + 1,
            "maxFailedIndexes": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [_run_is_over()]},
            "ttlSecondsAfterFinished": int(record.job.pod.ttl),
            "template": pod_template(
                record,
                plan,
                number,
                bundles=len(layout(shipped)),
                first_worker=first_worker,
                security_level=security_level,
            ),
        }
        found.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec})
    return found


def claim_object(record: Record, plan: Plan) -> Object | None:
    """The claim that is made for a run's results, if it wants one.

    Nothing owns it: it stays after the run is forgotten by its TTL, until the results were fetched."""
    output = record.job.pod.output
    if output is None or output.claim is not None:
        return None
    name = results_claim(record.job.pod, record.ref.name)
    assert name is not None
    return new_claim(
        _about(record, name, names.RESULTS),
        mode="ReadWriteMany" if worker_count(plan.world) > 1 else "ReadWriteOnce",
        size=output.size,
        storage_class=output.storage_class,
    )


def render(
    record: Record,
    plan: Plan,
    shipped: Shipped,
    *,
    security_level: str = "",
    namespace: str | None = None,
    suspend: bool = False,
) -> list[Object]:
    """Every object of a run, in the order of their making, for a person to read or for kubectl to try.

    Secrets are masked, and what is shipped is named with its size instead of its bytes."""
    started = started_objects(record, plan, shipped, security_level=security_level, suspend=suspend)
    written = record_object(record, shipped)
    written["data"][names.PLAN_KEY] = msgspec.json.encode(plan).decode()
    written["data"][names.TASK_KEY] = json.dumps(started.task)
    masked = dict.fromkeys((secret.name for secret in record.job.secrets), MASK)
    found = [
        written,
        *(_omitted(record, number, pieces) for number, pieces in enumerate(layout(shipped))),
        secret_object(record, MASK, masked),
        service_object(record),
        *started.claims,
        *started.jobs,
    ]
    if namespace is None:
        return found
    return [{**obj, "metadata": {"namespace": namespace, **obj["metadata"]}} for obj in found]


def owner_reference(obj: Object) -> Object:
    """What another object says of itself to go when this one goes."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
    }


def _about(record: Record, name: str, component: str) -> Object:
    return {
        "name": name,
        "labels": names.labels_of(record.ref.name, record.owner, component),
        "annotations": {names.SCHEMA: str(SCHEMA), names.OWNER: record.owner},
    }


def _bundle(record: Record, number: int) -> Object:
    about = _about(record, names.bundle_name(record.ref.name, number), names.BUNDLE)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "immutable": True}


def _omitted(record: Record, number: int, pieces: Sequence[Piece]) -> Object:
    made = _bundle(record, number)
    told = ", ".join(f"{piece.key}: {piece.size} bytes" for piece in pieces)
    made["metadata"]["annotations"][names.OMITTED] = told
    return made


def _run_is_over() -> Object:
    """Any other end of an agent is made good by another pod in its place."""
    codes = {"containerName": names.CONTAINER, "operator": "In", "values": [RUN_OVER, NO_LEADER]}
    return {"action": "FailJob", "onExitCodes": codes}
