"""The objects of a run in the API: made and removed so that any step may be repeated at any time.

The record comes first and reserves the name; all that is made for it belongs to it, and it belongs to the
run's Jobs once they are there. So Kubernetes itself removes everything with the Jobs, and a submission that
was cut off anywhere is taken up by making the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Literal

from echelon.engines.kubernetes import names, record
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, NotThere, Object
from echelon.engines.kubernetes.ownership import belonging
from echelon.engines.kubernetes.ownership.belonging import Identity, Standing
from echelon.engines.kubernetes.ownership.between import Between, Pair, pairs_of, read_between
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.keeper import keeper_object, level_of
from echelon.engines.kubernetes.render.manifests import Started, owner_reference
from echelon.engines.kubernetes.render.payload import map_names
from echelon.engines.kubernetes.shapes import Claim
from echelon.engines.kubernetes.state.workers import has_ended, is_cut_off, is_stuck
from echelon.errors import Denied, EchelonError, Refused, Unreachable
from echelon.values import frozen

# Seconds that Kubernetes may take to remove what was deleted. After an outage of the API server its
# controllers come back one by one, the last after a minute.
_GONE = 120.0
_UNCLEAR = 2  # more tries after an answer that was lost
_LOOK = 0.5  # seconds before them
_SEEN = 10.0  # seconds within which a controller has seen an object that another one names


def create(
    api: Api,
    obj: Object,
    owner: Object | None = None,
    *,
    made_for: str = "",
    kind: str = "",
    whole: bool = True,
) -> Object:
    """Make an object of a run, or find that it is there; one of the same name that is on its way out is
    waited for. It goes with `owner`, its run's record; or it is only marked as `made_for` the record of
    this uid. `kind` is how the API names its kind, if not by that name alone. Unless the `whole` is wanted,
    metadata may be all that is returned.
    """
    if owner is not None:
        about = {**obj["metadata"], "ownerReferences": [owner_reference(owner)]}
        wanted, made_for = {**obj, "metadata": about}, owner["metadata"]["uid"]
    else:
        wanted = belonging.marked(obj, made_for)
    mine = Identity(run=obj["metadata"]["labels"][names.RUN], record=made_for)

    def standing(found: Object) -> Standing:
        return belonging.standing(found, mine)

    return _make(api, wanted, standing, _taken, kind=kind or obj["kind"], whole=whole)


def create_record(api: Api, obj: Object) -> Object:
    """Make a run's record; raises AlreadyThere if its name is taken. After an answer that was lost, it may be
    there, or come yet: it is known by what it says.
    """

    def standing(found: Object) -> Standing:
        return "ours" if found.get("data") == obj["data"] else "other-run"

    def taken(found: Object, _standing: Standing) -> AlreadyThere:
        return AlreadyThere(f"the record {found['metadata']['name']!r} exists", hint="choose another name")

    return _make(api, obj, standing, taken, kind="ConfigMap")


def _make(
    api: Api,
    wanted: Object,
    standing_of: Callable[[Object], Standing],
    taken: Callable[[Object, Standing], EchelonError],
    *,
    kind: str,
    whole: bool = True,
) -> Object:
    """Make an object, or find that what has its name is what was to be made; whatever becomes of the answer.
    What is on its way out is waited for; anything else is `taken`.
    """
    name = wanted["metadata"]["name"]
    deadline, unclear = time.monotonic() + _GONE, 0
    while True:
        try:
            return api.create(wanted, whole=whole)
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
        standing = standing_of(found)
        if standing == "ours":
            return found
        if standing not in ("leaves", "orphan"):
            raise taken(found, standing)
        if time.monotonic() > deadline:
            raise Refused(
                f"the {wanted['kind']} {name!r} of an earlier run is still being removed",
                hint="try again in a moment, or choose another name with --name",
            )
        api.delete(kind, name, uid=found["metadata"]["uid"], grace=0)
        time.sleep(0.1)


def _taken(found: Object, standing: Standing) -> Refused:
    """The error for a name that something else has."""
    kind, name, run = found["kind"], found["metadata"]["name"], belonging.run_of(found)
    hint = "choose another name for the run with --name"
    if standing == "stranger":
        return Refused(f"a {kind} named {name!r} is in the namespace, and it is not echelon's", hint=hint)
    if standing == "other-run":
        part = "is the keeper of" if _component(found) == names.KEEPER else "belongs to"
        return Refused(f"the {kind} {name!r} {part} run {run!r}", hint=hint)
    if kind == "PersistentVolumeClaim":
        hint = f"--output pvc:{name} goes on in it, `echelon volume rm {name}` removes it; or {hint}"
    else:
        hint = f"`kubectl delete {kind.lower()} {name}` removes it; or {hint}"
    return Refused(f"the {kind} {name!r} is of another run that was called {run!r}", hint=hint)


def tie_record(api: Api, stored: Stored, jobs: Sequence[Object]) -> Object | None:
    """Let a run's record go when its first Job goes, and with it the others, which belong to the record;
    before that, make its keeper, so that a run whose record is tied has all that it was to have. Returns the
    record, if it was changed.

    A record that is gone was removed while the run was being started: its Jobs go too."""
    first = [job for job in jobs if job["metadata"]["name"] == stored.run.ref.name]
    if not first or {job["metadata"]["uid"] for job in first} <= stored.owners:
        return None
    _make_keeper(api, stored, first[0])
    try:
        change = record.tied([owner_reference(job) for job in first])
        return api.patch("ConfigMap", stored.run.ref.name, change, uid=stored.uid)
    except NotThere:
        for job in jobs:
            api.delete(job["kind"], job["metadata"]["name"], uid=job["metadata"]["uid"])
        raise


def _make_keeper(api: Api, stored: Stored, first: Object) -> None:
    """Make the run's keeper, if it is to have one; it waits with the Jobs. It is optional: without the room
    or the right for it, or where its name is taken, results stay with the workers as they would without one.
    """
    if stored.shape is None or stored.stop is not None:
        return
    made = keeper_object(
        stored.run, stored.shape, stored.shipped, security_level=level_of(first), waits=not stored.started
    )
    if made is None:
        return
    made["metadata"]["ownerReferences"] = [owner_reference(record_of(stored))]
    with suppress(AlreadyThere, Denied, Refused):
        api.create(made)


def take_back(api: Api, stored: Stored, jobs: Sequence[Object]) -> None:
    """Delete objects that wait for Kueue, and what their pods would have needed; the record stays, by itself.
    Were they made to end instead, Kueue would suspend them again, and they would wait on.
    """
    api.patch("ConfigMap", stored.run.ref.name, record.tied([]), uid=stored.uid)
    for job in jobs:
        api.delete(job["kind"], job["metadata"]["name"], uid=job["metadata"]["uid"])
    drop_payload(api, stored)


def drop_payload(api: Api, stored: Stored) -> None:
    """Delete what only the pods of a run need."""
    name = stored.run.ref.name
    named = [
        ("Secret", name),
        ("Service", dialects.leader_service(stored.dialect, name)),
        *(("ConfigMap", each) for each in map_names(name, stored.shipped)),
    ]
    _delete_own(api, named, record.identity(stored))


def _delete_own(api: Api, named: Iterable[tuple[str, str]], run: Identity) -> list[Object]:
    """Delete what is called so and belongs to a run; returns what is called so and does not."""
    left = []
    for kind, name in named:
        found = api.find(kind, name)
        if found is None:
            continue
        if belonging.belongs(found, run):
            api.delete(kind, name, uid=found["metadata"]["uid"])
        else:
            left.append({**found, "kind": kind})
    return left


def create_first(api: Api, started: Started, stored: Stored) -> Object:
    """Make the first Job of a run, after what it is made from, which goes with the record. All others go with
    the record, too, and the record goes with this one.
    """
    for each in started.beside:
        create(api, each, record_of(stored))
    deadline = time.monotonic() + _SEEN
    while True:
        try:
            return create(api, started.jobs[0], made_for=stored.uid)
        except Refused:  # perhaps by a webhook of a controller that has not seen the rest yet
            if not started.beside or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def delete_jobs(api: Api, jobs: Sequence[Object], stored: Stored, beside: Sequence[Object] = ()) -> None:
    """Delete Jobs of a run, and what they are made from, and wait until the names of the Jobs are free."""
    deadline = time.monotonic() + _GONE
    for job in jobs:
        api.delete(job["kind"], job["metadata"]["name"], uid=job["metadata"]["uid"])
    _delete_own(api, ((each["kind"], each["metadata"]["name"]) for each in beside), record.identity(stored))
    for job in jobs:
        while api.find(job["kind"], job["metadata"]["name"]) is not None and time.monotonic() < deadline:
            time.sleep(0.05)


def find_living(api: Api, run: Identity, dialect: str) -> list[Object]:
    """What may be at work of a run whose record cannot be read: objects of its own that are not over, and
    pods with its labels, whoever made them, that have not ended. Others of a run that waits go with its
    first.
    """
    found: list[Object] = []
    for kind in dialects.kinds_of([dialect]):
        with suppress(NotThere):  # a kind that its record names, and the cluster does not have
            listed = [
                {**item, "kind": kind} for item in api.list(kind, selector=names.selector(run.run)).items
            ]
            found += [job for job in belonging.split(listed, run)[0] if _is_at_work(job, run.run)]
    pods = api.list_shapes("Pod", Pod, selector=names.selector(run.run))
    return found + [_named("Pod", pod.metadata.name) for pod in pods if not has_ended(pod)]


def _is_at_work(job: Object, run: str) -> bool:
    end = dialects.end_of([job])
    if end is not None and end.final:
        return False
    return job["metadata"]["name"] == run or not dialects.of(job).is_suspended(job)


ClaimEnd = Literal["keep", "if-unused", "delete"]


@frozen
class Removed:
    """What a removal has left: what is not the run's, and whether the claim for its results is there."""

    left: tuple[Object, ...] = ()
    claim: bool = False


def remove(
    api: Api, run: Identity, *, claim: ClaimEnd = "if-unused", keep_record: bool = False, dialect: str = "job"
) -> Removed:
    """Delete everything of a run, and wait until its name is free; what only has its name or its labels
    stays. A claim for results goes too if it is unused: no pod has ever had it, so nothing is on it.

    `dialect` is what its workers are made of; its keeper is a Job always. What is known by its name is not
    listed, so that no right to list Secrets is needed."""
    kinds = dialects.kinds_of([dialect])
    selector = names.selector(run.run)
    # What controllers made of its objects goes with these, and must be known before.
    between = read_between(api, dialect, [run.run]) or Between()
    made = {(run.run, uid) for uid in run.jobs}
    left: list[Object] = []

    def there(kind: str) -> tuple[list[Object], list[Object]]:
        found: list[Object] = []
        with suppress(NotThere):  # a kind that its record names, and the cluster does not have
            found = [{**item, "kind": kind} for item in api.list(kind, selector=selector).items]
        ours, others = belonging.split(found, run)
        return [item for item in ours if not (keep_record and item["metadata"]["uid"] == run.record)], others

    for kind in (*kinds, "ConfigMap"):
        ours, others = there(kind)
        left += others
        for item in ours:
            made |= pairs_of([item])
            api.delete(kind, item["metadata"]["name"], uid=item["metadata"]["uid"])
    named = [*((kind, run.run) for kind in dialects.made_from(dialect)), ("Secret", run.run)]
    left += _delete_own(api, [*named, ("Service", dialects.leader_service(dialect, run.run))], run)
    stays = _end_claim(api, run, claim, left)
    left += _wait_for_pods(api, selector, made, None if dialect == "job" else between)
    deadline = time.monotonic() + _GONE
    for kind in (*kinds, "ConfigMap"):
        while ours := there(kind)[0]:
            if time.monotonic() > deadline:
                about = ours[0]["metadata"]
                raise _stays(kind, about["name"], about.get("finalizers") or ())
            time.sleep(0.05)
    return Removed(left=tuple(left), claim=stays)


def _end_claim(api: Api, run: Identity, end: ClaimEnd, left: list[Object]) -> bool:
    """Delete the claim that was made for a run's results, if it shall go; whether it stays."""
    name = names.claim_name(run.run)
    with suppress(Denied):
        found = None if end == "keep" else api.find_shape("PersistentVolumeClaim", Claim, name)
        if found is None:
            return end == "keep"
        if not belonging.is_for(found.metadata, run):
            left.append(_named("PersistentVolumeClaim", name))
            return False
        if end == "delete" or found.status.phase == "Pending":
            api.delete("PersistentVolumeClaim", name, uid=found.metadata.uid)
            return False
    return True


def _wait_for_pods(api: Api, selector: str, made: Collection[Pair], between: Between | None) -> list[Object]:
    """Wait until the pods are gone that were made of a run's objects; with `between`, of Jobs that a
    controller made of these, or may have made. Returns pods with the run's labels that nothing made.
    """
    deadline = time.monotonic() + _GONE
    uids = {uid for _, uid in (between or Between()).makers(made)}

    def is_awaited(pod: Pod) -> bool:
        if belonging.is_made_by(pod.metadata, uids):
            return True
        of_job = pod.metadata.maker.kind == "Job"
        return between is not None and of_job and not between.refutes(pod)

    while True:
        found = api.list_shapes("Pod", Pod, selector=selector)
        left = [pod for pod in found if is_awaited(pod)]
        if not left:
            return [_named("Pod", pod.metadata.name) for pod in found if not pod.metadata.has_maker]
        _forget_unreachable(api, left)
        if time.monotonic() > deadline:
            raise _pod_stays(left[0])
        time.sleep(0.05)


def _named(kind: str, name: str) -> Object:
    return {"kind": kind, "metadata": {"name": name}}


def _forget_unreachable(api: Api, pods: Sequence[Pod]) -> None:
    """Delete pods of dead nodes by force: Kubernetes waits for ever for their kubelet. The run is over, and
    an agent that is still alive there has noticed the loss of its gang.
    """
    for pod in pods:
        if is_stuck(pod, time.time()):
            with suppress(Denied):
                api.delete("Pod", pod.metadata.name, uid=pod.metadata.uid, grace=0)


def _pod_stays(pod: Pod) -> Refused:
    if not is_cut_off(pod):
        return _stays("Pod", pod.metadata.name, pod.metadata.finalizers)
    why = f"its node {pod.spec.node_name} does not respond, and you may not delete pods"
    return _stays("Pod", pod.metadata.name, (), why)


def _stays(kind: str, name: str, finalizers: Sequence[str], why: str = "") -> Refused:
    why = why or f"it is held by {', '.join(finalizers) or 'nothing that it says'}"
    return Refused(
        f"the {kind} {name!r} does not go away: {why}", hint=f"kubectl describe {kind.lower()} {name}"
    )


def record_of(stored: Stored) -> Object:
    """The object of a run's record, as an owner."""
    about = {"name": stored.run.ref.name, "uid": stored.uid}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about}


def _component(obj: Object) -> str:
    return str((obj["metadata"].get("labels") or {}).get(names.COMPONENT, ""))
