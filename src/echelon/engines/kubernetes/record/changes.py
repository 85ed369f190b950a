"""The changes that are ever made to a record, as merge patches. Pure.

A change that must not overwrite another one carries the version that it was decided on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.record import keys
from echelon.engines.kubernetes.record.reading import MOST_WAITS
from echelon.engines.kubernetes.record.values import Claim, Collected, Shipped, Stop, Waiting
from echelon.model.event import Event
from echelon.model.plan import Plan
from echelon.model.run import SCHEMA, Record

Object = dict[str, Any]
_OURS = "echelon.dev/"
_MOST_MANIFESTS = 2000


def new(record: Record, shipped: Shipped) -> Object:
    """The object of a run that is recorded now.

    Where its results belong is not part of it: the submitting machine keeps that (`engines/machine.py`)."""
    import echelon

    about = names.metadata(record.ref.name, record.owner, record.ref.name, names.RECORD, record.job)
    about["annotations"] |= {
        keys.SCHEMA: str(SCHEMA),
        keys.VERSION: echelon.__version__,
        keys.DIALECT: record.job.pod.job_kind,
        keys.SHIPPED: _json(shipped),
    }
    written = _json(replace(record, plan=None, results=""))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {keys.RECORD: written}}


def renewed(known: Object, made: Object) -> Object:
    """The change that makes the object of a run that has ended one that `new` has made now."""
    about, wanted = known["metadata"], made["metadata"]
    ours = [key for key in about.get("annotations") or {} if key.startswith(_OURS)]
    change = {
        "resourceVersion": about["resourceVersion"],
        "annotations": dict.fromkeys(ours) | wanted["annotations"],
        "labels": {names.PARENT: None} | wanted["labels"],  # it may have been a step
        "ownerReferences": [],
    }
    return {"metadata": change, "data": dict.fromkeys(known.get("data") or {}) | made["data"]}


def tasked(task: str) -> Object:
    """The run's agents have a task that is too long for an annotation of their pods."""
    return {"data": {names.TASK_KEY: task}}


def tied(owners: Sequence[Object]) -> Object:
    """The record goes with these objects; with none, it stays by itself."""
    return {"metadata": {"ownerReferences": list(owners)}}


def with_reason(
    waits: tuple[Waiting, ...], reason: str, *, at: float, admitted: float | None = None
) -> tuple[Waiting, ...]:
    """The reasons for which a run was queued so far, and the one for which it is now: the first, and the last
    ones.
    """
    if waits and waits[-1].reason == reason and admitted is None:
        return waits
    return (*waits[:1], *waits[1:][-MOST_WAITS:], Waiting(at=at, reason=reason, admitted=admitted))


def stopping(stop: Stop) -> Object:
    """The run is to end."""
    return _noted(**{keys.STOP: _json(stop)})


def finished(end: Event, collected: Collected | None = None, *, plan: Plan | None = None) -> Object:
    """The run has ended, and, if they were, its results are fetched. Of a very large run the manifests are
    left out: an object has 1 MiB. `plan` is what its Jobs have, which may go before the record.
    """
    if len(end.manifests or ()) > _MOST_MANIFESTS:
        end = replace(end, manifests=None)
    notes = {} if collected is None else {keys.COLLECTED: _json(collected)}
    planned = {} if plan is None else {keys.PLAN: _json(plan)}
    return {**_noted(**notes), "data": {keys.FINISHED: _json(end), **planned}}


def claimed(claim: Claim | None, *, version: str = "") -> Object:
    """The run has a tender, or, with None, none any more."""
    return _noted(version, **{keys.CLAIM: None if claim is None else _json(claim)})


def _noted(version: str = "", **annotations: str | None) -> Object:
    about: Object = {"annotations": annotations}
    if version:
        about["resourceVersion"] = version
    return {"metadata": about}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
