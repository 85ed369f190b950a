"""The record of a run: the ConfigMap that reserves its name, and that any process with the same rights reads.

Every key, annotation and state of that object is defined here and nowhere else. `read` is the border: it
turns the object, which any user with rights in the namespace may have written, into a `Stored` value, or
raises RunDamaged. The functions below it are the changes that are ever made to a record, as merge patches;
a change that must not overwrite another one carries the version that it was decided on.

A record of an older schema is read; one of a newer schema is refused, with what to do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec

from echelon.engines import machine
from echelon.engines.base import RunDamaged
from echelon.engines.decoding import decode
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.belonging import Identity
from echelon.engines.kubernetes.fields import json_object, moment, one_line
from echelon.errors import StateTrouble
from echelon.model.event import Event, bounded, is_moment, is_sound
from echelon.model.plan import Plan
from echelon.model.run import SCHEMA, Record, RunRef, check_schema
from echelon.model.world import worker_count
from echelon.values import frozen

Object = dict[str, Any]

# Annotations of the record.
_OURS = "echelon.dev/"
_SCHEMA = "echelon.dev/schema"
_VERSION = "echelon.dev/version"  # of the client that recorded the run
_STOP = "echelon.dev/stop"  # {"at", "reason", "outcome", "now"}
_ADMITTED = "echelon.dev/admitted"  # when the run got its plan
_STARTED = "echelon.dev/started"  # when all objects of its plan existed
_TRIED = "echelon.dev/tended"  # when admission of a queued run was last tried
_COLLECTED = "echelon.dev/collected"  # {"at", "host", "path", "missing"}
_SHIPPED = "echelon.dev/shipped"  # the sizes of what the run was shipped
_CLAIM = "echelon.dev/tender"  # {"holder", "until"}
_DIALECT = "echelon.dev/dialect"  # which kind of objects the workers are made of
_HELD = "echelon.dev/held"  # "true": its Jobs exist from the beginning, and wait; `held` reads the rest there

# Keys of its data.
_RECORD = "record.json"
_PLAN = "plan.json"
_QUEUED = "queued.json"
_FINISHED = "finished.json"

_OUTCOMES: Mapping[str, Literal["failed", "timed-out"]] = {"failed": "failed", "timed-out": "timed-out"}
_MOST_RANKS = 1_000_000
_MOST_MANIFESTS = 2000
_MOST_WAITS = 30
SUBMISSION = 10.0  # seconds within which the client that recorded a run has queued or started it
TRIED_WITHIN = 60.0  # seconds; a tender tries to admit its queued run at least every 15


@frozen
class Shipped:
    """What a run was shipped: sizes in bytes, 0 for what was not; digests of the code and of the rest. `sent`
    is the size of code that is sent to worker 0 when it has started.
    """

    agent: int = 0
    code: int = 0
    wheel: int = 0
    requirements: int = 0
    digest: str = ""
    rest: str = ""
    sent: int = 0


@frozen
class Stop:
    """A request, kept in the record, that the run ends; `outcome` is what it ends as."""

    at: float
    reason: str
    outcome: Literal["stopped", "failed", "timed-out"] = "stopped"
    now: bool = False


@frozen
class Waiting:
    """Why a run was queued, and since when for that reason. `admitted` is when it was admitted before, and
    then rolled back.
    """

    at: float
    reason: str
    admitted: float | None = None


@frozen
class Collected:
    """When a run's results were fetched, and to which folder of which machine; no path if there were none.
    `missing` is what was lost before, and is in no folder: a sentence for each worker.
    """

    at: float = 0.0
    host: str = ""
    path: str = ""
    missing: tuple[str, ...] = ()


@frozen
class Claim:
    """The tender claim: which process looks after the run from outside, until when if it is not renewed."""

    holder: str
    until: float


@frozen
class Stored:
    """A record as it is in the cluster. `version` is the API server's own count of changes to it."""

    run: Record
    uid: str
    version: str = ""
    dialect: str = "job"
    shipped: Shipped = Shipped()
    queued: tuple[Waiting, ...] = ()
    admitted: float | None = None
    started: bool = False
    stop: Stop | None = None
    end: Event | None = None
    collected: Collected | None = None
    claim: Claim | None = None
    tried: float | None = None  # when admission was last tried, while it is queued
    owners: frozenset[str] = frozenset()  # uids of the objects that it goes with
    held: bool = False  # its Jobs exist from the beginning; what follows is what they say
    shape: Plan | None = None  # the plan that the Jobs would start with
    whole: bool = False  # all pods of its gang were on nodes once
    deleted: float | None = None


def identity(stored: Stored) -> Identity:
    """What the objects of a run are known by."""
    return Identity(run=stored.run.ref.name, record=stored.uid, jobs=stored.owners)


Phase = Literal["recorded", "queued", "starting", "started"]


def phase_of(stored: Stored, *, has_jobs: bool, now: float) -> Phase:
    """How far the submission of a run came. A plan without Jobs is of a start that was cut off, unless it is
    so young that the client is still at it; a run that was queued before that is queued again.
    """
    if has_jobs or stored.started:
        return "started"
    if stored.admitted is not None and now - stored.admitted < SUBMISSION:
        return "starting"
    return "queued" if stored.queued else "recorded"


def is_abandoned(stored: Stored, *, has_jobs: bool, now: float) -> bool:
    """Whether a run's submission was interrupted a while ago, so that nothing will happen to it."""
    last = stored.admitted or stored.run.created
    return phase_of(stored, has_jobs=has_jobs, now=now) == "recorded" and now - last > SUBMISSION


def is_free(claim: Claim | None, now: float) -> bool:
    """Whether no process looks after a run: its claim was given up, has expired, or is a dead process's."""
    return claim is None or now >= claim.until or machine.is_dead_process(claim.holder)


def is_untended(stored: Stored, *, has_jobs: bool, now: float) -> bool:
    """Whether a run is queued and no process will admit it. The client that queued it at this moment, or
    that takes the claim over, is given the time to.
    """
    waits = phase_of(stored, has_jobs=has_jobs, now=now) == "queued" and stored.stop is None
    last = max(stored.tried or 0.0, *(each.at for each in stored.queued), stored.run.created)
    return waits and is_free(stored.claim, now) and now - last > SUBMISSION


# Reading


def read(obj: Mapping[str, Any], ref: RunRef) -> Stored:
    """The record that an object is; RunDamaged if it is none, whatever is in it."""
    about, data = obj["metadata"], obj.get("data") or {}
    notes = about.get("annotations") or {}
    try:
        check_schema(ref.name, notes.get(_SCHEMA))
    except StateTrouble as error:  # the run can still be listed and removed
        raise RunDamaged(ref.name, error.message, hint=error.hint) from error
    try:
        run = decode(data[_RECORD], Record)
        plan = decode(data[_PLAN], Plan) if _PLAN in data else None
        shipped = decode(notes.get(_SHIPPED, "{}"), Shipped)
        _check_sense(run, plan, ref.name)
    except (KeyError, ValueError, RecursionError) as error:
        raise RunDamaged(ref.name, f"its record cannot be read: {one_line(error)}") from error
    owners = about.get("ownerReferences") or ()
    # Schema 1 had no mark of its own for a start: a record that belonged to Jobs had been started.
    began = _STARTED in notes or (notes[_SCHEMA] == "1" and any(each.get("kind") == "Job" for each in owners))
    return Stored(
        run=replace(run, ref=ref, plan=plan, owner=one_line(run.owner), user=one_line(run.user)),
        uid=str(about.get("uid") or ""),
        version=str(about.get("resourceVersion") or ""),
        dialect=dialect_of(obj),
        shipped=shipped,
        queued=read_waits(data.get(_QUEUED)),
        admitted=read_moment(notes.get(_ADMITTED)),
        started=began,
        stop=read_stop(notes.get(_STOP)),
        end=_read_end(data.get(_FINISHED)),
        collected=_read_collected(notes.get(_COLLECTED)),
        claim=_read_claim(notes.get(_CLAIM)),
        tried=read_moment(notes.get(_TRIED)),
        owners=frozenset(str(each["uid"]) for each in owners),
        deleted=moment(about.get("deletionTimestamp")),
        held=notes.get(_HELD) == "true",
    )


def _check_sense(run: Record, plan: Plan | None, name: str) -> None:
    """Raise ValueError for a record whose parts do not go together, or that no client writes: readers make a
    list of a run's workers and ranks, and folders of the names that it gives.
    """
    if run.job.name != name:
        raise ValueError(f"it is of a job named {run.job.name!r}")
    if not is_moment(run.created):
        raise ValueError("it was recorded at no time")
    if any(PurePosixPath(path).name in ("", "..") for path in run.job.pod.collect):
        raise ValueError("it names a folder to collect that cannot be one")
    shares = [(run.job.workers, run.job.procs), *((each.workers, each.procs) for each in run.job.roles)]
    _check_ranks(shares)
    if plan is not None:
        check_plan(plan, name)


def check_plan(plan: Plan, name: str) -> None:
    """Raise ValueError for a plan that cannot be the run's."""
    groups = plan.world.groups
    _check_ranks([(each.workers, each.procs) for each in groups])
    if plan.run != name or worker_count(plan.world) != len(plan.placement.seats):
        raise ValueError("its plan is of another run, or has no seat for every worker")
    if len(plan.launches) != len(groups):
        raise ValueError("its plan does not say how all of its workers start")


def _check_ranks(shares: Sequence[tuple[int, int]]) -> None:
    if any(workers < 0 or procs < 0 or workers * max(procs, 1) > _MOST_RANKS for workers, procs in shares):
        raise ValueError("it has more ranks than there can be")


def has_end(obj: Mapping[str, Any]) -> bool:
    """Whether an object's record has the run's end, without reading the rest of it."""
    return _read_end((obj.get("data") or {}).get(_FINISHED)) is not None


def read_stop(text: object) -> Stop | None:
    """A stop, as an annotation has it."""
    if not text:
        return None
    found = json_object(str(text))
    return Stop(
        at=read_moment(found.get("at")) or 0.0,
        reason=one_line(found.get("reason")) or "stopped",
        outcome=_OUTCOMES.get(str(found.get("outcome")), "stopped"),
        now=found.get("now") is True,
    )


def read_waits(text: object) -> tuple[Waiting, ...]:
    """Why a run was queued, as it is written down."""
    try:
        found = decode(str(text or "[]"), list[Waiting])
    except (ValueError, RecursionError):
        return ()
    return tuple(
        Waiting(
            at=read_moment(each.at) or 0.0, reason=one_line(each.reason), admitted=read_moment(each.admitted)
        )
        for each in found[: _MOST_WAITS + 2]
    )


def _read_end(text: object) -> Event | None:
    with contextlib.suppress(ValueError, RecursionError):
        end = decode(str(text), Event) if text else None
        return bounded(end) if end is not None and end.kind == "finished" and is_sound(end) else None
    return None


def _read_collected(text: object) -> Collected | None:
    if text is None:
        return None
    found = json_object(str(text))
    at, host, path, missing = (found.get(key) for key in ("at", "host", "path", "missing"))
    lost = tuple(map(one_line, missing)) if isinstance(missing, list) else ()
    return Collected(at=read_moment(at) or 0.0, host=one_line(host), path=one_line(path), missing=lost)


def _read_claim(text: object) -> Claim | None:
    found = json_object(str(text or ""))
    until = read_moment(found.get("until"))
    return None if until is None else Claim(holder=str(found.get("holder") or ""), until=until)


def read_moment(value: object) -> float | None:
    """A time in seconds; None for what is none, or none that a calendar has."""
    try:
        found = float(value) if value not in (None, "") else None  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found is not None and is_moment(found) else None


def dialect_of(obj: Mapping[str, Any]) -> str:
    """Which kind of objects the workers of a run are made of, by its record."""
    return str((obj["metadata"].get("annotations") or {}).get(_DIALECT) or "job")


# Writing


def new(record: Record, shipped: Shipped, *, held: bool = False) -> Object:
    """The object of a run that is recorded now; with `held`, of one whose Jobs are made at once, and wait.

    Where its results belong is not part of it: the submitting machine keeps that (`engines/machine.py`)."""
    import echelon

    about = names.metadata(record.ref.name, record.owner, record.ref.name, names.RECORD, record.job.pod)
    about["annotations"] |= {
        _SCHEMA: str(SCHEMA),
        _VERSION: echelon.__version__,
        _DIALECT: record.job.pod.job_kind,
        _SHIPPED: _json(shipped),
    }
    if held:
        about["annotations"][_HELD] = "true"
    written = _json(replace(record, plan=None, results=""))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {_RECORD: written}}


def renewed(known: Object, made: Object) -> Object:
    """The change that makes the object of a run that has ended one that `new` has made now."""
    about, wanted = known["metadata"], made["metadata"]
    ours = [key for key in about.get("annotations") or {} if key.startswith(_OURS)]
    change = {
        "resourceVersion": about["resourceVersion"],
        "annotations": dict.fromkeys(ours) | wanted["annotations"],
        "labels": wanted["labels"],
        "ownerReferences": [],
    }
    return {"metadata": change, "data": dict.fromkeys(known.get("data") or {}) | made["data"]}


def admitted(plan: Plan, task: Mapping[str, Any], *, at: float, version: str = "") -> Object:
    """The run has its plan, and its agents' task."""
    data = {_PLAN: _json(plan), names.TASK_KEY: json.dumps(task)}
    return {**_noted(version, **{_ADMITTED: str(at)}), "data": data}


def started(owners: Sequence[Object], *, at: float) -> Object:
    """All objects of the plan exist, and the record goes with them."""
    change = _noted(**{_STARTED: str(at)})
    change["metadata"]["ownerReferences"] = list(owners)
    return change


def tied(owners: Sequence[Object]) -> Object:
    """The record of a run that is held goes with these objects; with none, it stays by itself."""
    return {"metadata": {"ownerReferences": list(owners)}}


def queued(stored: Stored, reason: str, *, at: float) -> Object:
    """Admission was tried, and the run waits for `reason`."""
    change = _noted(**{_TRIED: str(at)})
    waits = with_reason(stored.queued, reason, at=at)
    if waits != stored.queued:
        change["data"] = {_QUEUED: _json(waits)}
    return change


def with_reason(
    waits: tuple[Waiting, ...], reason: str, *, at: float, admitted: float | None = None
) -> tuple[Waiting, ...]:
    """The reasons for which a run was queued so far, and the one for which it is now: the first, and the last
    ones.
    """
    if waits and waits[-1].reason == reason and admitted is None:
        return waits
    return (*waits[:1], *waits[1:][-_MOST_WAITS:], Waiting(at=at, reason=reason, admitted=admitted))


def stopping(stop: Stop) -> Object:
    """The run is to end."""
    return _noted(**{_STOP: _json(stop)})


def finished(end: Event, collected: Collected | None = None, *, plan: Plan | None = None) -> Object:
    """The run has ended, and, if they were, its results are fetched. Of a very large run the manifests are
    left out: an object has 1 MiB. `plan` is what its Jobs have: a list of ended runs reads no Jobs.
    """
    if len(end.manifests or ()) > _MOST_MANIFESTS:
        end = replace(end, manifests=None)
    notes = {} if collected is None else {_COLLECTED: _json(collected)}
    planned = {} if plan is None else {_PLAN: _json(plan)}
    return {**_noted(**notes), "data": {_FINISHED: _json(end), **planned}}


def claimed(claim: Claim | None, *, version: str = "") -> Object:
    """The run has a tender, or, with None, none any more."""
    return _noted(version, **{_CLAIM: None if claim is None else _json(claim)})


def _noted(version: str = "", **annotations: str | None) -> Object:
    about: Object = {"annotations": annotations}
    if version:
        about["resourceVersion"] = version
    return {"metadata": about}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# In lists of thousands


class _Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    pass


class _Notes(_Shape, frozen=True):
    stop: str | None = msgspec.field(name=_STOP, default=None)
    tried: str | None = msgspec.field(name=_TRIED, default=None)


class _Meta(_Shape, frozen=True):
    name: str
    namespace: str = ""
    annotations: _Notes = _Notes()
    deletion_timestamp: str | None = None


class _Data(_Shape, frozen=True):
    record: str = msgspec.field(name=_RECORD, default="")
    plan: str | None = msgspec.field(name=_PLAN, default=None)
    queued: str | None = msgspec.field(name=_QUEUED, default=None)
    finished: str | None = msgspec.field(name=_FINISHED, default=None)


class Outline(_Shape, frozen=True):
    """The part of a record that shows whether its run is queued."""

    metadata: _Meta
    data: _Data = _Data()


def is_queued(outline: Outline, now: float) -> bool:
    """Whether a run waits to be admitted, and a tender has tried to do so lately."""
    waits = outline.data.queued is not None and outline.data.plan is None
    tried = read_moment(outline.metadata.annotations.tried)
    return waits and not leaves_queue(outline) and (tried is None or now - tried < TRIED_WITHIN)


def leaves_queue(outline: Outline) -> bool:
    """Whether a run was stopped or removed, or is over, so that it keeps no other waiting."""
    about = outline.metadata
    stopped = about.annotations.stop is not None or about.deletion_timestamp is not None
    return stopped or outline.data.finished is not None


def created(outline: Outline) -> float:
    """When a run was recorded."""
    return read_moment(json_object(outline.data.record).get("created")) or 0.0
