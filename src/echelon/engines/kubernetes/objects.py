"""The objects of a run in the API: made and removed so that any step may be repeated at any time.

The record comes first and reserves the name; all that is made for it belongs to it, and it belongs to the
run's Jobs once they are there. So Kubernetes itself removes everything with the Jobs, and a submission that
was cut off anywhere is taken up by making the rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from echelon.engines.kubernetes import names, record
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, NotThere, Object
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.keeper import keeper_object, level_of
from echelon.engines.kubernetes.render.manifests import Started, owner_reference
from echelon.engines.kubernetes.render.payload import layout
from echelon.engines.kubernetes.state.workers import is_cut_off, is_stuck
from echelon.errors import Denied, Refused, Unreachable

# Seconds that Kubernetes may take to remove what was deleted. After an outage of the API server its
# controllers come back one by one, the last after a minute.
_GONE = 120.0
_UNCLEAR = 2  # more tries after an answer that was lost
_LOOK = 0.5  # seconds before them
_SEEN = 10.0  # seconds within which a controller has seen an object that another one names


def create(api: Api, obj: Object, owner: Object | None = None) -> Object:
    """Make an object, or find that it is there; one of the same name that is on its way out is waited for."""
    wanted = {**obj, "metadata": {**obj["metadata"]}}
    if owner is not None:
        wanted["metadata"]["ownerReferences"] = [owner_reference(owner)]
    kind, name = obj["kind"], obj["metadata"]["name"]
    deadline, unclear = time.monotonic() + _GONE, 0
    while True:
        try:
            return api.create(wanted)
        except AlreadyThere:
            found = api.find(kind, name)
        except Unreachable:  # the answer is lost; the object may be there, or come yet
            unclear += 1
            found = api.find(kind, name)
            if found is None and unclear > _UNCLEAR:
                raise
            time.sleep(0.0 if found is not None else _LOOK)
        if found is None:
            continue
        leaves = bool(found["metadata"].get("deletionTimestamp"))
        theirs = (found["metadata"].get("labels") or {}).get(names.RUN)
        if owner is None and not leaves and theirs == wanted["metadata"]["labels"][names.RUN]:
            return found  # of this run: records reserve names
        if owner is not None and not leaves and _owned_by(found, owner):
            return found
        if theirs is None:
            raise Refused(
                f"a {kind} named {name!r} is in the namespace, and it is not echelon's",
                hint="choose another name for the run with --name",
            )
        if not leaves and theirs != wanted["metadata"]["labels"][names.RUN]:
            part = "is the keeper of" if _component(found) == names.KEEPER else "belongs to"
            raise Refused(
                f"the {kind} {name!r} {part} run {theirs!r}",
                hint="choose another name for the run with --name",
            )
        if time.monotonic() > deadline:
            raise Refused(
                f"the {kind} {name!r} of an earlier run is still being removed",
                hint="try again in a moment, or choose another name with --name",
            )
        # Of a run of the same name that is being removed, or whose owner is gone.
        api.delete(kind, name, uid=found["metadata"]["uid"], grace=0)
        time.sleep(0.1)


def create_record(api: Api, obj: Object) -> Object:
    """Make a run's record; raises AlreadyThere if its name is taken. After an answer that was lost, it may be
    there, or come yet: it is looked for, and known by what it says.
    """
    name, unclear = obj["metadata"]["name"], 0
    while True:
        try:
            return api.create(obj)
        except AlreadyThere:
            found = api.find("ConfigMap", name) if unclear else None
            if found is None or found.get("data") != obj["data"]:
                raise
            return found
        except Unreachable:
            unclear += 1
            found = api.find("ConfigMap", name)
            if found is not None and found.get("data") == obj["data"]:
                return found
            if unclear > _UNCLEAR:
                raise
            time.sleep(_LOOK)


def tie_record(api: Api, stored: Stored, jobs: Sequence[Object]) -> Object | None:
    """Mark the run as started, and let its record go when its Jobs go; before that, make its keeper, so that
    a run whose record is tied has all that it was to have. Returns the record, if it was changed.

    A record that is gone was removed while the run was being started: its Jobs go too."""
    if stored.held:  # its other Jobs go with the record
        jobs = [job for job in jobs if job["metadata"]["name"] == stored.run.ref.name]
    wanted = [owner_reference(job) for job in jobs]
    tied = stored.started or stored.held
    if not wanted or (tied and {each["uid"] for each in wanted} <= stored.owners):
        return None
    _make_keeper(api, stored, jobs)
    try:
        at = round(time.time(), 3)
        change = record.tied(wanted) if stored.held else record.started(wanted, at=at)
        return api.patch("ConfigMap", stored.run.ref.name, change)
    except NotThere:
        for job in jobs:
            api.delete(job["kind"], job["metadata"]["name"], uid=job["metadata"]["uid"])
        raise


def _make_keeper(api: Api, stored: Stored, jobs: Sequence[Object]) -> None:
    """Make the run's keeper, if it is to have one. It is optional: without the room or the right for it, or
    where its name is taken, results stay with the workers as they would without one.
    """
    plan = stored.run.plan
    if plan is None or not jobs or stored.stop is not None or stored.held:
        return
    made = keeper_object(stored.run, plan, stored.shipped, security_level=level_of(jobs[0]))
    if made is None:
        return
    create_keeper(api, made, _record_of(stored))


def create_keeper(api: Api, made: Object, owner: Object) -> None:
    """Create a run's keeper, which goes with its record, if that can be."""
    made["metadata"]["ownerReferences"] = [owner_reference(owner)]
    with suppress(AlreadyThere, Denied, Refused):
        api.create(made)


def take_back(api: Api, stored: Stored, jobs: Sequence[Object]) -> None:
    """Delete objects that wait for Kueue, and what their pods would have needed; the record stays, by itself.
    Were they made to end instead, Kueue would suspend them again, and they would wait on.
    """
    api.patch("ConfigMap", stored.run.ref.name, record.tied([]))
    for job in jobs:
        api.delete(job["kind"], job["metadata"]["name"], uid=job["metadata"]["uid"])
    drop_payload(api, stored)


def drop_payload(api: Api, stored: Stored) -> None:
    """Delete what only the pods of a run need."""
    name = stored.run.ref.name
    api.delete("Secret", name)
    api.delete("Service", dialects.leader_service(stored.dialect, name))
    for number in range(len(layout(stored.shipped))):
        api.delete("ConfigMap", names.bundle_name(name, number))


def create_jobs(api: Api, started: Started, stored: Stored) -> list[Object]:
    """Make the Jobs of a run, after what they are made from, which goes with the record."""
    for each in started.beside:
        create(api, each, _record_of(stored))
    deadline = time.monotonic() + _SEEN
    while True:
        try:
            return [create(api, job) for job in started.jobs]
        except Refused:  # perhaps by a webhook of a controller that has not seen the rest yet
            if not started.beside or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def delete_jobs(api: Api, jobs: Sequence[Object], beside: Sequence[Object] = ()) -> None:
    """Delete Jobs of a run, and what they are made from, and wait until the names of the Jobs are free."""
    deadline = time.monotonic() + _GONE
    for job in jobs:
        api.delete(job["kind"], job["metadata"]["name"], uid=job["metadata"]["uid"])
    for each in beside:
        api.delete(each["kind"], each["metadata"]["name"])
    for job in jobs:
        while api.find(job["kind"], job["metadata"]["name"]) is not None and time.monotonic() < deadline:
            time.sleep(0.05)


def remove(api: Api, run: str, *, keep_claim: bool, keep_record: bool = False, dialect: str = "job") -> None:
    """Delete everything of a run, and wait until its name is free.

    `dialect` is what its workers are made of; its keeper is a Job always. What is known by its name is not
    looked for, so that no right to list Secrets is needed."""
    kinds = dialects.kinds_of([dialect])

    def there(kind: str) -> list[Object]:
        items = api.list(kind, selector=names.selector(run)).items
        return [item for item in items if not (keep_record and _component(item) == names.RECORD)]

    for kind in (*kinds, "ConfigMap"):
        for item in there(kind):
            api.delete(kind, item["metadata"]["name"], uid=item["metadata"]["uid"])
    for kind in dialects.made_from(dialect):
        api.delete(kind, run)
    api.delete("Service", dialects.leader_service(dialect, run))
    api.delete("Secret", run)
    if not keep_claim:
        api.delete("PersistentVolumeClaim", names.claim_name(run))
    deadline = time.monotonic() + _GONE
    for kind in (*kinds, "Pod", "ConfigMap"):
        while left := there(kind):
            if kind == "Pod":
                _forget_unreachable(api, left)
            if time.monotonic() > deadline:
                raise _stays(kind, left[0])
            time.sleep(0.05)


def _forget_unreachable(api: Api, pods: Sequence[Object]) -> None:
    """Delete pods of dead nodes by force: Kubernetes waits for ever for their kubelet. The run is over, and
    an agent that is still alive there has noticed the loss of its gang.
    """
    for pod in pods:
        if is_stuck(pod, time.time()):
            with suppress(Denied):
                api.delete("Pod", pod["metadata"]["name"], uid=pod["metadata"]["uid"], grace=0)


def _stays(kind: str, obj: Object) -> Refused:
    about = obj["metadata"]
    if kind == "Pod" and is_cut_off(obj):
        node = obj["spec"].get("nodeName")
        why = f"its node {node} does not respond, and you may not delete pods"
    else:
        why = f"it is held by {', '.join(about.get('finalizers') or ()) or 'nothing that it says'}"
    return Refused(
        f"the {kind} {about['name']!r} does not go away: {why}",
        hint=f"kubectl describe {kind.lower()} {about['name']}",
    )


def _record_of(stored: Stored) -> Object:
    """The object of a run's record, as an owner."""
    about = {"name": stored.run.ref.name, "uid": stored.uid}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about}


def _component(obj: Object) -> str:
    return str((obj["metadata"].get("labels") or {}).get(names.COMPONENT, ""))


def _owned_by(obj: Object, owner: Object) -> bool:
    uid = owner["metadata"]["uid"]
    return any(each["uid"] == uid for each in obj["metadata"].get("ownerReferences") or ())
