"""The objects of a run in the API: made and removed so that any step may be repeated at any time.

The record comes first and reserves the name; all that is made for it belongs to it, and it belongs to the
run's Jobs once they are there. So Kubernetes itself removes everything with the Jobs, and a submission that
was cut off anywhere is taken up by making the rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, NotThere, Object
from echelon.engines.kubernetes.client.fields import moment
from echelon.engines.kubernetes.render.manifests import owner_reference
from echelon.engines.kubernetes.state.workers import is_cut_off
from echelon.errors import Denied, Refused

_GONE = 60.0  # seconds that Kubernetes may take to remove what was deleted


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
        # Of a run of the same name that is being forgotten, or that nobody owns any more.
        api.delete(kind, name, uid=found["metadata"]["uid"], grace=0)
        time.sleep(0.1)


def adopt(api: Api, record: Object, jobs: Sequence[Object]) -> None:
    """Let the record belong to the run's Jobs, so that it goes when they go.

    If it went meanwhile, the run was removed while it was being started, and they go too."""
    wanted = [owner_reference(job) for job in jobs]
    present = {each["uid"] for each in record["metadata"].get("ownerReferences") or ()}
    if {each["uid"] for each in wanted} <= present:
        return
    name = record["metadata"]["name"]
    try:
        api.patch("ConfigMap", name, {"metadata": {"ownerReferences": wanted}})
    except NotThere:
        for job in jobs:
            api.delete("Job", job["metadata"]["name"], uid=job["metadata"]["uid"])
        raise


def delete_jobs(api: Api, jobs: Sequence[Object]) -> None:
    """Delete Jobs of a run and wait until their names are free."""
    deadline = time.monotonic() + _GONE
    for job in jobs:
        api.delete("Job", job["metadata"]["name"], uid=job["metadata"]["uid"])
    for job in jobs:
        while api.find("Job", job["metadata"]["name"]) is not None and time.monotonic() < deadline:
            time.sleep(0.05)


def remove(api: Api, run: str, *, keep_claim: bool) -> None:
    """Delete everything of a run, and wait until its name is free.

    What is known by its name is not looked for: nobody needs the right to list Secrets for this."""
    selector = names.selector(run)
    for kind in ("Job", "ConfigMap"):
        for item in api.list(kind, selector=selector).items:
            api.delete(kind, item["metadata"]["name"], uid=item["metadata"]["uid"])
    api.delete("Service", run)
    api.delete("Secret", run)
    if not keep_claim:
        api.delete("PersistentVolumeClaim", names.claim_name(run))
    deadline = time.monotonic() + _GONE
    for kind in ("Job", "Pod", "ConfigMap"):
        while left := api.list(kind, selector=selector).items:
            if kind == "Pod":
                _forget_unreachable(api, left)
            if time.monotonic() > deadline:
                raise _stays(kind, left[0])
            time.sleep(0.05)


def _forget_unreachable(api: Api, pods: Sequence[Object]) -> None:
    """Let go of pods on nodes that are not heard of: Kubernetes waits for ever for a word from there. The run
    is over, and what may still be alive there has noticed that it is alone.
    """
    for pod in pods:
        due = moment(pod["metadata"].get("deletionTimestamp"))
        if due is not None and time.time() >= due and is_cut_off(pod):
            with suppress(Denied):
                api.delete("Pod", pod["metadata"]["name"], uid=pod["metadata"]["uid"], grace=0)


def _stays(kind: str, obj: Object) -> Refused:
    about = obj["metadata"]
    if kind == "Pod" and is_cut_off(obj):
        node = obj["spec"].get("nodeName")
        why = f"its node {node} is not heard of, and you may not delete pods"
    else:
        why = f"it is held by {', '.join(about.get('finalizers') or ()) or 'nothing that it says'}"
    return Refused(
        f"the {kind} {about['name']!r} does not go away: {why}",
        hint=f"kubectl describe {kind.lower()} {about['name']}",
    )


def _owned_by(obj: Object, owner: Object) -> bool:
    uid = owner["metadata"]["uid"]
    return any(each["uid"] == uid for each in obj["metadata"].get("ownerReferences") or ())
