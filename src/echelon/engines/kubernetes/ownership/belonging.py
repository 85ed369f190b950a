"""Which objects are a run's own. Pure.

A name says nothing: a user's own Secret may be called like a run, and anybody who may write in the namespace
can make a record of any name, or give an object the labels of a run. What was made for a run carries its
labels **and** the uid of its record, which the API server gives and no other record ever has: in an owner
reference, or, on what must not go with the record (its Jobs, to which the record belongs, and a claim), in an
annotation. A pod is a run's own by the uid of the object whose controller made it. Nothing is deleted,
started again or taken for a run's that does not pass here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.shapes import ObjectMeta
from echelon.values import frozen

Object = dict[str, Any]
_TOLD = 8  # objects that are named


@frozen
class Identity:
    """What a run's objects are known by: its name, the uid of its record, and the uids of the Jobs to which
    the record belongs. Those count only where a Job of an older version says nothing itself.
    """

    run: str
    record: str
    jobs: frozenset[str] = frozenset()


def identity_of(record: Mapping[str, Any]) -> Identity:
    """The identity of a run whose record cannot be read: what it says of Jobs counts for nothing."""
    about = record["metadata"]
    return Identity(run=about["name"], record=str(about.get("uid") or ""))


def marked(obj: Object, uid: str) -> Object:
    """An object that is made for the run with this record, and does not go with it."""
    about = obj["metadata"]
    notes = {**(about.get("annotations") or {}), names.RECORD_UID: uid}
    return {**obj, "metadata": {**about, "annotations": notes}}


def run_of(obj: Mapping[str, Any]) -> str | None:
    """The run that an object says it belongs to."""
    found = (obj["metadata"].get("labels") or {}).get(names.RUN)
    return None if found is None else str(found)


def belongs(obj: Mapping[str, Any], run: Identity) -> bool:
    """Whether an object was made for a run, or is its record."""
    about = obj["metadata"]
    owners = {each.get("uid") for each in about.get("ownerReferences") or ()}
    return _is_part(run, run_of(obj), _mark_of(obj), about.get("uid"), owners)


def is_for(about: ObjectMeta, run: Identity) -> bool:
    """The same of an object that was read into its shape."""
    mark = about.annotations.get(names.RECORD_UID)
    return _is_part(run, about.labels.get(names.RUN), mark, about.uid, about.owners)


def _is_part(
    run: Identity, of: str | None, mark: str | None, uid: str | None, owners: Collection[str | None]
) -> bool:
    if of != run.run or not run.record:
        return False
    if mark is not None:
        return mark == run.record
    return uid == run.record or run.record in owners or uid in run.jobs


def is_owned_by(obj: Mapping[str, Any], uid: str) -> bool:
    """Whether an object goes with the one of this uid."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return bool(uid) and any(each.get("uid") == uid for each in owners)


def is_made_by(about: ObjectMeta, makers: Collection[str]) -> bool:
    """Whether a controller made an object of one of these, given by their uids."""
    return bool(about.maker.uid) and about.maker.uid in makers


Standing = Literal["ours", "leaves", "orphan", "earlier", "other-run", "stranger"]


def standing(found: Mapping[str, Any], run: Identity) -> Standing:
    """What an object is that has the name of one that is to be made for a run. An `orphan` is of an earlier
    run of the name: it went with that run's record, and this run's record has its name now. Of an `earlier`
    one too, but nothing says that it shall go.
    """
    theirs = run_of(found)
    if theirs is None:
        return "stranger"
    if found["metadata"].get("deletionTimestamp"):
        return "leaves"
    if theirs != run.run:
        return "other-run"
    if belongs(found, run):
        return "ours"
    owners = found["metadata"].get("ownerReferences") or ()
    records = [each for each in owners if (each.get("kind"), each.get("name")) == ("ConfigMap", run.run)]
    return "orphan" if records and len(records) == len(owners) else "earlier"


def split(found: Iterable[Object], run: Identity) -> tuple[list[Object], list[Object]]:
    """Objects that belong to a run, and others."""
    ours: list[Object] = []
    others: list[Object] = []
    for each in found:
        (ours if belongs(each, run) else others).append(each)
    return ours, others


def describe_left(run: str, left: Sequence[Object]) -> str:
    """One line on objects that a removal has left, though they have a name or the labels of the run's."""
    told = [f"{each['kind']} {each['metadata']['name']}" for each in left[:_TOLD]]
    more = [f"{len(left) - _TOLD} more"] if len(left) > _TOLD else []
    return f"left as they are, since run {run} did not make them: {', '.join([*told, *more])}"


def _mark_of(obj: Mapping[str, Any]) -> str | None:
    found = (obj["metadata"].get("annotations") or {}).get(names.RECORD_UID)
    return None if found is None else str(found)
