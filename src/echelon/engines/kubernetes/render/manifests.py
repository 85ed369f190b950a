"""A run as Kubernetes objects: values in, dictionaries out, nothing asked and nothing sent.

`shipped_objects` are made when a run is recorded, `started_objects` when it has its plan; `render` is all of
them for the dry run. The engine creates them, and ties them together by owner references: what is shipped
belongs to the record, the record to the Jobs, so that nothing outlives those."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes import record as stored
from echelon.engines.kubernetes.record import Shipped
from echelon.engines.kubernetes.render.dialects import Dialect
from echelon.engines.kubernetes.render.keeper import keeper_object
from echelon.engines.kubernetes.render.payload import Payload, Piece, content, layout, map_names, weigh
from echelon.engines.kubernetes.render.task import is_short, write_plan, write_task
from echelon.engines.kubernetes.render.volumes import new_claim, results_claim
from echelon.engines.kubernetes.render.workload import workload_object
from echelon.model.plan import Plan
from echelon.model.run import Record
from echelon.model.world import worker_count
from echelon.values import frozen

Object = dict[str, Any]

MASK = "***"
_NONE: Mapping[str, str] = MappingProxyType({})


@frozen
class Started:
    """What a run's workers are made of: a claim that outlives it, what its Jobs are made from and is the
    record's, and its Jobs; and the agents' task, where it is too long for an annotation of the pods.
    """

    task: str | None
    claims: list[Object]
    beside: list[Object]
    jobs: list[Object]


def shipped_objects(
    record: Record, payload: Payload, dialect: Dialect, *, gang: str, secrets: Mapping[str, str]
) -> list[Object]:
    """What belongs to the record and does not depend on where the run will be."""
    return [
        *bundle_objects(record, payload),
        secret_object(record, gang, secrets),
        service_object(record, dialect),
    ]


def bundle_objects(record: Record, payload: Payload) -> list[Object]:
    """The ConfigMaps in which agent and code travel."""
    found = []
    shipped = weigh(payload)
    for name, pieces in zip(map_names(record.ref.name, shipped), layout(shipped), strict=True):
        made = _bundle(record, name)
        made["binaryData"] = {
            piece.key: base64.b64encode(content(payload, piece)).decode() for piece in pieces
        }
        found.append(made)
    return found


def secret_object(record: Record, gang: str, secrets: Mapping[str, str]) -> Object:
    """The secret by which the run's agents prove that they belong to it, and the user's own."""
    values = {names.secret_key(name): value for name, value in secrets.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(record, record.ref.name, names.SECRET),
        "type": "Opaque",
        "stringData": {names.GANG_KEY: gang, **values},
    }


def service_object(record: Record, dialect: Dialect) -> Object:
    """The address of the leader, which exists before its pod does.

    It is not headless: a pod's name is in DNS only once the pod is, and an agent that asks too early gets a
    negative answer that is cached for seconds. This name and its address stay. (`agent/gang/lookup.py` asks
    for the pod as well, for the first second.)"""
    name = record.ref.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(record, dialect.leader_service(name), names.SERVICE),
        "spec": {
            "publishNotReadyAddresses": True,
            "selector": dialect.leader_selector(name),
            "ports": [{"name": "gang", "port": names.PORT, "protocol": "TCP"}],
        },
    }


def started_objects(
    record: Record,
    plan: Plan,
    shipped: Shipped,
    dialect: Dialect,
    *,
    security_level: str = "",
    variables: Mapping[str, str] = _NONE,
    at: float | None = None,
) -> Started:
    """The Jobs of a run that is admitted `at` that moment, or that waits to be admitted; the claim for its
    results if one is wanted. `variables` are for ranks whose user does not set them.
    """
    claim = claim_object(record, plan)
    task = write_task(record, plan, shipped, dialect, variables)
    made = dialect.render(
        record,
        plan,
        shipped,
        security_level=security_level,
        task=task if is_short(task) else None,
        waits=at is None,
    )
    jobs = [obj for obj in made if obj["kind"] in dialect.KINDS]
    if len(jobs) > 1:  # they wait for each other, and are released together
        jobs = [{**job, "spec": {**job["spec"], "suspend": True}} for job in jobs]
    jobs[0]["metadata"]["annotations"] |= _admission(record, plan, at, several=len(jobs) > 1)
    return Started(
        task=None if is_short(task) else task,
        claims=[claim] if claim is not None else [],
        beside=[obj for obj in made if obj["kind"] not in dialect.KINDS],
        jobs=jobs,
    )


def _admission(record: Record, plan: Plan, at: float | None, *, several: bool) -> dict[str, str]:
    """What the first Job of a run says of its admission. One that starts at once is left to the scheduler:
    nothing looks whether all of it has nodes.
    """
    notes = {names.PLAN: write_plan(plan), names.CREATED: str(record.created)}
    if at is not None:
        notes |= {names.ADMITTED: str(at), names.WHOLE: str(at)}
    if several and record.job.pod.queue is not None:  # they are admitted by one Workload
        notes[names.IN_KUEUE] = record.job.pod.queue
    if record.job.timeout is not None:
        notes[names.TIMEOUT] = f"{record.job.timeout:.15g}"
    if record.job.priority:
        notes[names.PRIORITY] = str(record.job.priority)
    return notes


def claim_object(record: Record, plan: Plan) -> Object | None:
    """The claim that is made for a run's results, if it wants one.

    Nothing owns it: it stays after the run is forgotten by its TTL, until the results were fetched."""
    output = record.job.pod.output
    if output is None or output.claim is not None:
        return None
    name = results_claim(record.job.pod, record.ref.name)
    assert name is not None
    return new_claim(
        _metadata(record, name, names.RESULTS),
        mode="ReadWriteMany" if worker_count(plan.world) > 1 else "ReadWriteOnce",
        size=output.size,
        storage_class=output.storage_class,
    )


def render(
    record: Record,
    plan: Plan,
    shipped: Shipped,
    dialect: Dialect,
    *,
    security_level: str = "",
    namespace: str | None = None,
) -> list[Object]:
    """Every object of a run, in the order of their making, for a person to read or for kubectl to try.

    Secrets are masked, and what is shipped is named with its size instead of its bytes."""
    made = started_objects(record, plan, shipped, dialect, security_level=security_level, at=0.0)
    written = stored.new(record, shipped)
    if made.task is not None:
        written["data"] |= stored.tasked(made.task)["data"]
    masked = dict.fromkeys((secret.name for secret in record.job.secrets), MASK)
    found = [
        written,
        *map(partial(_omitted, record), map_names(record.ref.name, shipped), layout(shipped)),
        secret_object(record, MASK, masked),
        service_object(record, dialect),
        *made.claims,
        *made.beside,
        *made.jobs,
    ]
    if (workload := workload_object(record, made.jobs)) is not None:
        found.append(workload)
    if (keeper := keeper_object(record, plan, shipped, security_level=security_level)) is not None:
        found.append(keeper)
    if namespace is None:
        return found
    return [{**obj, "metadata": {"namespace": namespace, **obj["metadata"]}} for obj in found]


def owner_reference(obj: Object) -> Object:
    """The owner reference to this object: Kubernetes removes what carries it together with the object."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
    }


def _metadata(record: Record, name: str, component: str) -> Object:
    return names.metadata(record.ref.name, record.owner, name, component, record.job)


def _bundle(record: Record, name: str) -> Object:
    about = _metadata(record, name, names.BUNDLE)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "immutable": True}


def _omitted(record: Record, name: str, pieces: Sequence[Piece]) -> Object:
    made = _bundle(record, name)
    sizes = ", ".join(f"{piece.key}: {piece.size} bytes" for piece in pieces)
    made["metadata"]["annotations"][names.OMITTED] = sizes
    return made
