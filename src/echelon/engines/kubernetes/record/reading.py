"""The border where a record is read: any user with rights in the namespace may have written it.

`read` turns the object into a `Stored` value, or raises RunDamaged. A record of an older schema is read; one
of a newer schema is refused, with what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Literal

from echelon.agent.stopping import seconds_in
from echelon.engines.base import RunDamaged
from echelon.engines.decoding import decode
from echelon.engines.kubernetes.fields import json_object, moment, one_line
from echelon.engines.kubernetes.record import keys
from echelon.engines.kubernetes.record.values import Claim, Collected, Shipped, Stop, Stored, Waiting
from echelon.errors import StateTrouble
from echelon.model.event import Event, bounded, is_moment, is_sound
from echelon.model.plan import Plan
from echelon.model.run import Record, RunRef, check_schema
from echelon.model.world import worker_count

_OUTCOMES: Mapping[str, Literal["failed", "timed-out"]] = {"failed": "failed", "timed-out": "timed-out"}
_MOST_RANKS = 1_000_000
MOST_WAITS = 30  # reasons for which a run was queued that are kept


def read(obj: Mapping[str, Any], ref: RunRef) -> Stored:
    """The record that an object is; RunDamaged if it is none, whatever is in it."""
    about, data = obj["metadata"], obj.get("data") or {}
    notes = about.get("annotations") or {}
    try:
        check_schema(ref.name, notes.get(keys.SCHEMA))
    except StateTrouble as error:  # the run can still be listed and removed
        raise RunDamaged(ref.name, error.message, hint=error.hint) from error
    try:
        run = decode(data[keys.RECORD], Record)
        plan = decode(data[keys.PLAN], Plan) if keys.PLAN in data else None
        shipped = decode(notes.get(keys.SHIPPED, "{}"), Shipped)
        _check_sense(run, plan, ref.name)
    except (KeyError, ValueError, RecursionError) as error:
        raise RunDamaged(ref.name, f"its record cannot be read: {one_line(error)}") from error
    owners = about.get("ownerReferences") or ()
    return Stored(
        run=replace(run, ref=ref, plan=plan, owner=one_line(run.owner), user=one_line(run.user)),
        uid=str(about.get("uid") or ""),
        version=str(about.get("resourceVersion") or ""),
        dialect=dialect_of(obj),
        shipped=shipped,
        stop=read_stop(notes.get(keys.STOP)),
        end=_read_end(data.get(keys.FINISHED)),
        collected=_read_collected(notes.get(keys.COLLECTED)),
        claim=_read_claim(notes.get(keys.CLAIM)),
        owners=frozenset(str(each["uid"]) for each in owners),
        deleted=moment(about.get("deletionTimestamp")),
        admitted=run.created if plan is not None else None,
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
        check_plan(plan)


def check_plan(plan: Plan) -> None:
    """Raise ValueError for a plan that cannot be."""
    groups = plan.world.groups
    _check_ranks([(each.workers, each.procs) for each in groups])
    if worker_count(plan.world) != len(plan.placement.seats):
        raise ValueError("its plan does not have a seat for every worker")
    if len(plan.launches) != len(groups):
        raise ValueError("its plan does not say how all of its workers start")


def _check_ranks(shares: Sequence[tuple[int, int]]) -> None:
    if any(workers < 0 or procs < 0 or workers * max(procs, 1) > _MOST_RANKS for workers, procs in shares):
        raise ValueError("it has more ranks than there can be")


def has_end(obj: Mapping[str, Any]) -> bool:
    """Whether an object's record has the run's end, without reading the rest of it."""
    return _read_end((obj.get("data") or {}).get(keys.FINISHED)) is not None


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
        grace=seconds_in(found.get("grace")),
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
        for each in found[: MOST_WAITS + 2]
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
    return str((obj["metadata"].get("annotations") or {}).get(keys.DIALECT) or "job")
