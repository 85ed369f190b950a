"""A folder of a volume that several runs would write to (`--output pvc:NAME/path`) belongs to one at a time.

The records of a namespace are the reservations: a claim is the namespace's own, and each record says where
its run writes."""

from __future__ import annotations

import posixpath
import time
from dataclasses import replace

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.prerequisites.asked import unless_denied
from echelon.engines.kubernetes.record import is_abandoned, read
from echelon.errors import Denied, StateTrouble, UnknownRun
from echelon.model.job import Job
from echelon.model.run import RunRef

_Place = tuple[str, str]


def check_output(api: Api, job: Job, ref: RunRef, own: Object | None = None) -> None:
    """Raise StateTrouble, which names it, if another run that goes on writes to the folder of a volume that
    the job names. With `own`, the record of this run, only one that was recorded before: of two that are
    submitted at once, one has the folder. Who may not list records is told so by `note_on_output`.
    """
    wanted = place_of(job)
    if wanted is None:
        return
    try:
        listed = api.list("ConfigMap", selector=f"{names.COMPONENT}={names.RECORD}").items
    except Denied:
        return
    for obj in filter(views.is_record, listed):
        name = obj["metadata"]["name"]
        if name == ref.name or (own is not None and _age(own) < _age(obj)):
            continue
        other = replace(ref, name=name)
        try:
            job = read(obj, other).run.job
        except StateTrouble:
            continue  # of another version: where it writes is not known
        if place_of(job) == wanted and _goes_on(api, other):
            raise StateTrouble(
                f"{_named(wanted)} is in use: run {name!r} writes to it",
                hint=f"--output chooses another folder; `echelon stop {name}` ends that run",
            )


def note_on_output(api: Api, job: Job) -> str | None:
    """What a user who may not list records should know: no other run is kept from the folder of a volume."""
    wanted = place_of(job)
    if wanted is None or unless_denied(lambda: api.may("list", "ConfigMap")) is not False:
        return None
    return (
        f"{_named(wanted)} is not reserved for this run: you may not list configmaps, so whether another run "
        "writes to it is not known"
    )


def place_of(job: Job) -> _Place | None:
    """The claim and the folder on it that a job's results go to, if they go to a claim of the user's."""
    output = job.pod.output
    if output is None or output.claim is None:
        return None
    return output.claim, posixpath.normpath("/" + output.path).strip("/")


def _named(place: _Place) -> str:
    claim, path = place
    return f"pvc:{claim}/{path}".rstrip("/")


def _age(obj: Object) -> tuple[float, str]:
    metadata = obj["metadata"]
    return moment(metadata.get("creationTimestamp")) or 0.0, str(metadata.get("uid"))


def _goes_on(api: Api, ref: RunRef) -> bool:
    from echelon.engines.kubernetes.follow.follow import read_events

    try:
        view = views.look(api, ref)
        if is_abandoned(view.stored, time.time()):
            return False
        return not any(event.kind == "finished" for event in read_events(api, ref))
    except UnknownRun:
        return False  # it was removed meanwhile
