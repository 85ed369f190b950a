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
from echelon.engines.kubernetes.render.manifests import owner_reference
from echelon.engines.kubernetes.state.workers import is_cut_off, is_stuck
from echelon.errors import Denied, Refused

# Seconds that Kubernetes may take to remove what was deleted. After an outage of the API server its
# controllers come back one by one, the last after a minute.
_GONE = 120.0


def create(api: Api, obj: Object, owner: Object | None = None) -> Object:
    """Make an object, or find that it is there; one of the same name that is on its way out is waited for."""
    wanted = {**obj, "metadata": {**obj["metadata"]}}
    if owner is not None:
        wanted["metadata"]["ownerReferences"] = [owner_reference(owner)]
    kind, name = obj["kind"], obj["metadata"]["name"]
    deadline = time.monotonic() + _GONE
    while True:
        try:
            return api.create(wanted)
        except AlreadyThere:
            found = api.find(kind, name)
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
        if time.monotonic() > deadline:
            raise Refused(
                f"the {kind} {name!r} of an earlier run is still being removed",
                hint="try again in a moment, or choose another name with --name",
            )
        # Of a run of the same name that is being removed, or whose owner is gone.
        api.delete(kind, name, uid=found["metadata"]["uid"], grace=0)
        time.sleep(0.1)


def tie_record(api: Api, stored: Stored, jobs: Sequence[Object]) -> None:
    """Mark the run as started, and let its record go when its Jobs go.

    A record that is gone was removed while the run was being started: its Jobs go too."""
    wanted = [owner_reference(job) for job in jobs]
    if not wanted or (stored.started and {each["uid"] for each in wanted} <= stored.owners):
        return
    try:
        change = record.started(wanted, at=round(time.time(), 3))
        api.patch("ConfigMap", stored.run.ref.name, change)
    except NotThere:
        for job in jobs:
            api.delete(job["kind"], job["metadata"]["name"], uid=job["metadata"]["uid"])
        raise


def delete_jobs(api: Api, jobs: Sequence[Object]) -> None:
    """Delete Jobs of a run and wait until their names are free."""
    deadline = time.monotonic() + _GONE
    for job in jobs:
        api.delete(job["kind"], job["metadata"]["name"], uid=job["metadata"]["uid"])
    for job in jobs:
        while api.find(job["kind"], job["metadata"]["name"]) is not None and time.monotonic() < deadline:
            time.sleep(0.05)


def remove(api: Api, run: str, *, keep_claim: bool, kinds: Sequence[str] | None = None) -> None:
    """Delete everything of a run, and wait until its name is free.

    `kinds` are those that its workers are made of. What is known by its name is not looked for, so that no
    right to list Secrets is needed."""
    selector, kinds = names.selector(run), kinds or dialects.DIALECTS["job"].KINDS
    for kind in (*kinds, "ConfigMap"):
        for item in api.list(kind, selector=selector).items:
            api.delete(kind, item["metadata"]["name"], uid=item["metadata"]["uid"])
    api.delete("Service", run)
    api.delete("Secret", run)
    if not keep_claim:
        api.delete("PersistentVolumeClaim", names.claim_name(run))
    deadline = time.monotonic() + _GONE
    for kind in (*kinds, "Pod", "ConfigMap"):
        while left := api.list(kind, selector=selector).items:
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


def _owned_by(obj: Object, owner: Object) -> bool:
    uid = owner["metadata"]["uid"]
    return any(each["uid"] == uid for each in obj["metadata"].get("ownerReferences") or ())
