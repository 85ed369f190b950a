"""Admission of a run whose Jobs wait: they are started, made to wait again, or withdrawn.

All of it is patches of Jobs, each with the version that it was decided on: nothing is created, no Secret is
read, and the record is not written. Only where the shape of a run changes in a way that its Jobs cannot take
(more groups than there are Jobs, or a server that freezes the resources of suspended Jobs) are they made
anew; a process without the right to that gets ShapeKept, and admits the run in the shape that it has.

Several Jobs are started one after the other, the first one first: it has the plan. What is cut off in
between, or does not get its nodes in time, is rolled back by upkeep (`tend`), the first Job last."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from echelon.engines.base import ShapeKept, Taken
from echelon.engines.kubernetes import ledger, names, objects, record
from echelon.engines.kubernetes.client.api import Api, Conflict, Invalid, NotThere, Object
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.keeper import is_keeper
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.prerequisites import pod_security
from echelon.engines.kubernetes.queue import leases, making, workload
from echelon.engines.kubernetes.record import Stop, Stored, Waiting, with_reason
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.render.keeper import keeper_object, level_of
from echelon.engines.kubernetes.render.manifests import Started, owner_reference
from echelon.engines.kubernetes.render.pod import RESTRICTED
from echelon.engines.kubernetes.render.workload import workload_object
from echelon.engines.kubernetes.suspended import is_suspended
from echelon.errors import Denied, Refused, StateTrouble
from echelon.model.plan import Plan
from echelon.model.run import RunRef

_NONE: Mapping[str, Any] = MappingProxyType({})
_TRIES = 5  # patches of a Job whose status the controller changes at the same time


def hold(api: Api, stored: Stored, plan: Plan, variables: Mapping[str, str] = _NONE) -> None:
    """Make the Jobs of a run that was recorded now, which wait, and ask Kueue where it admits them together.
    `variables` are for ranks whose user does not set them.
    """
    jobs = making.hold(api, stored, plan, level=pod_security.level_of(api) or "", variables=variables)
    asked = workload_object(stored.run, jobs)
    if asked is not None:
        workload.make(api, asked, objects.record_of(stored))


def start_in_kueue(api: Api, stored: Stored, plan: Plan) -> None:
    """Start the Jobs of a run that Kueue admits, in the shape that Kueue was asked for. Raises NotAdmitted as
    long as Kueue lets it wait.
    """
    if stored.stop is None and stored.run.plan is None:
        pods = workload.wait_for_answer(api, stored)
        _start_waiting(api, stored.run.ref, stored.shape or plan, lambda: None, pods)


def wait_again(api: Api, view: View, reason: str) -> None:
    """Kueue has taken back what it gave to a run: its Jobs wait, and Kueue is asked anew."""
    stored, shape = view.stored, view.stored.shape
    roll_back(api, view, reason)
    workload.free(api, stored)
    asked = None if shape is None else _rendered(stored, shape, view.jobs[0]).jobs
    wanted = workload_object(stored.run, asked or ())
    if wanted is not None:
        workload.make(api, wanted, objects.record_of(stored))


def start(api: Api, ref: RunRef, plan: Plan, check_free: Callable[[], None]) -> None:
    """Start the Jobs of a run with this plan. `check_free` raises Taken if another run has what it needs; it
    is asked while no other process of the namespace admits a run. Starting again does nothing.
    """
    with leases.admission(api):
        _start_waiting(api, ref, plan, check_free)
    _check_security(api, ref, plan)


def _start_waiting(
    api: Api, ref: RunRef, plan: Plan, check_free: Callable[[], None], pods: Mapping[str, Object] = _NONE
) -> None:
    """Start what waits; `pods` has what is added to the pods of each Job."""
    view = views.look(api, ref)
    stored = view.stored
    if stored.stop is not None or stored.run.plan is not None:
        return
    if ledger.first_of(view.waiting, ref.name) is None:
        raise StateTrouble(f"run {ref.name!r} has no Jobs", hint="submit it again")
    check_free()
    try:
        _start(api, view, plan, pods)
    except Conflict:
        if views.look(api, ref).stored.run.plan is None:
            raise Taken("another process") from None
        return  # which has admitted it at this moment
    _start_keeper(api, stored, plan)


def _start(api: Api, view: View, plan: Plan, pods: Mapping[str, Object]) -> None:
    stored = view.stored
    rendered = _rendered(stored, plan, view.waiting[0])
    wanted = {job["metadata"]["name"]: job for job in rendered.jobs}
    for name, more in pods.items():
        _add_to_pods(wanted.get(name), more)
    there = {job["metadata"]["name"]: job for job in view.waiting}
    about = objects.record_of(stored)
    try:
        for name, job in wanted.items():
            if name not in there:
                there[name] = objects.create(api, job, about)
        if rendered.task is not None:
            _write_task(api, stored, rendered.task)
    except Denied:
        raise _shape_kept(stored) from None
    at = round(time.time(), 3)
    begun: list[Object] = []
    try:
        for name, job in wanted.items():
            begun.append(_begin(api, there[name], job, at=at))
    except Conflict:
        if begun:  # another process is at it, after the first Job was ours: upkeep decides
            return
        raise
    except Invalid:
        for job in reversed(begun):
            change = dialects.of(job).suspended(suspend=True)
            change["metadata"] = {"annotations": {names.ADMITTED: None}}  # its tender suspends it
            api.patch(job["kind"], job["metadata"]["name"], change, uid=job["metadata"]["uid"])
        _recreate(api, stored, list(there.values()), wanted, at=at)


def _write_task(api: Api, stored: Stored, task: str) -> None:
    """Write a task into the record that is too long for annotations, for another plan than it was for."""
    found = views.find_object(api, stored.run.ref.name)
    old = ((found or {}).get("data") or {}).get(names.TASK_KEY)
    if (wanted := ledger.with_groups(old, task)) != old:
        api.patch("ConfigMap", stored.run.ref.name, record.tasked(wanted), uid=stored.uid)


def _add_to_pods(job: Object | None, more: Object) -> None:
    if job is None:
        return
    pod = job["spec"]["template"]["spec"]
    for field, value in more.items():
        if value:
            before = pod.get(field)
            pod[field] = {**(before or {}), **value} if isinstance(value, dict) else [*(before or ()), *value]


def _begin(api: Api, job: Object, wanted: Object, *, at: float) -> Object:
    """Start one Job, unless anything but its status has changed since it was read. On a server that allows no
    change of its pods any more they stay as they are, if it comes to the same.
    """
    kind, name = job["kind"], job["metadata"]["name"]
    template = True
    for _ in range(_TRIES):
        try:
            return api.patch(kind, name, ledger.started(job, wanted, at=at, template=template))
        except Conflict:
            now = _now(api, job)
            if now is None or now["metadata"].get("generation") != job["metadata"].get("generation"):
                raise
            job = now
        except Invalid:
            if not template or ledger.is_resized(job, wanted):
                raise
            template = False
    raise Conflict(f"the Job {name!r} changes all the time", hint="try again")


def _now(api: Api, job: Object) -> Object | None:
    """A Job as it is now; None if it is gone, or another one by that name."""
    about = job["metadata"]
    listed = api.list(job["kind"], selector=names.selector(about["labels"][names.RUN])).items
    return next((each for each in listed if each["metadata"]["uid"] == about["uid"]), None)


def _recreate(
    api: Api, stored: Stored, jobs: list[Object], wanted: Mapping[str, Object], *, at: float
) -> None:
    """Make the Jobs anew, started: this server does not let their size change."""
    name, about = stored.run.ref.name, objects.record_of(stored)
    try:
        api.patch("ConfigMap", name, record.tied([]), uid=stored.uid)  # or it would go with the first Job
        objects.delete_jobs(api, jobs, stored)
    except Denied:
        raise _shape_kept(stored) from None
    for number, job in enumerate(wanted.values()):
        begun = ledger.with_task_of(jobs[0], {**job, "spec": {**job["spec"], "suspend": False}})
        begun["metadata"]["annotations"][names.ADMITTED] = str(at)
        if not number:
            made = objects.create(api, begun, made_for=stored.uid)
            api.patch("ConfigMap", name, record.tied([owner_reference(made)]), uid=stored.uid)
        else:
            objects.create(api, begun, about)


def _check_security(api: Api, ref: RunRef, plan: Plan) -> None:
    """Where the namespace's Pod Security level cannot be read, it is known by whether pods are refused."""
    if pod_security.level_of(api) is not None or not api.may("create", "Job"):
        return
    view = views.look(api, ref)
    if not view.jobs or level_of(view.jobs[0]) == RESTRICTED:
        return
    if pod_security.refuses(api, view.jobs, names.selector(ref.name, names.WORKER)):
        with suppress(ShapeKept):
            rendered = _rendered(view.stored, plan, view.jobs[0], level=RESTRICTED)
            wanted = {job["metadata"]["name"]: job for job in rendered.jobs}
            _recreate(api, view.stored, list(view.jobs), wanted, at=round(time.time(), 3))


def _start_keeper(api: Api, stored: Stored, plan: Plan) -> None:
    """It is optional: without it results stay with the workers."""
    made = keeper_object(stored.run, plan, stored.shipped, waits=True)
    if made is None:
        return
    with suppress(Denied, Refused):
        found = _keeper_of(api, stored)
        if found is not None and is_suspended(found):
            change = ledger.template_change(found["spec"]["template"], made["spec"]["template"])
            spec = {"suspend": False, **({"template": change} if change else {})}
            api.patch("Job", found["metadata"]["name"], {"spec": spec}, uid=found["metadata"]["uid"])


def _keeper_of(api: Api, stored: Stored) -> Object | None:
    """The Job of the run's keeper."""
    if stored.run.job.pod.keeper is None:
        return None
    listed = api.list("Job", selector=names.selector(stored.run.ref.name, names.KEEPER)).items
    return next((job for job in listed if is_keeper(job, stored)), None)


def roll_back(api: Api, view: View, reason: str) -> None:
    """Make the Jobs of a gang that is not whole wait again, the first one last: as long as it is started, so
    is the run, and upkeep goes on. A Job that has changed meanwhile is decided on again.
    """
    stored, at = view.stored, round(time.time(), 3)
    waits = _rolled_back(stored, reason, at=at)
    mine = sorted(view.jobs, key=lambda job: job["metadata"]["name"] == stored.run.ref.name)
    with suppress(Conflict):
        for job in mine:
            first = job["metadata"]["name"] == stored.run.ref.name
            if not is_suspended(job):
                change = ledger.rolled_back(job, waits if first else (), at=at)
                api.patch(job["kind"], job["metadata"]["name"], change)
        keeper = _keeper_of(api, stored)
        if keeper is not None and not is_suspended(keeper):
            about = keeper["metadata"]
            api.patch("Job", about["name"], {"spec": {"suspend": True}}, uid=about["uid"])


def _rolled_back(stored: Stored, reason: str, *, at: float) -> tuple[Waiting, ...]:
    return with_reason(stored.queued, reason, at=at, admitted=stored.admitted)


def see_whole(api: Api, view: View) -> None:
    """Note that all pods of the gang are on nodes."""
    first = ledger.first_of(view.jobs, view.stored.run.ref.name)
    if first is not None:
        with suppress(Conflict):
            api.patch(
                first["kind"], first["metadata"]["name"], ledger.seen_whole(first, at=round(time.time(), 3))
            )


def queue(api: Api, ref: RunRef, reason: str) -> None:
    """Write down why the run must wait, unless it was admitted or has ended."""
    for _ in range(_TRIES):
        view = views.look(api, ref)
        first = ledger.first_of(view.waiting, ref.name)
        if first is None or view.stored.stop is not None:
            return
        at = round(time.time(), 3)
        waits = with_reason(view.stored.queued, reason, at=at)
        with suppress(Conflict):
            api.patch(first["kind"], ref.name, ledger.queued(first, waits, at=at))
            return


def withdraw(api: Api, view: View, stop: Stop) -> bool:
    """End a run that waits, for good; False if it was admitted meanwhile."""
    ref = view.stored.run.ref
    for _ in range(_TRIES):
        first = ledger.first_of(view.waiting, ref.name)
        if first is None:
            return not view.jobs
        try:
            api.patch(first["kind"], ref.name, ledger.withdrawn(first, stop))
        except Conflict:
            view = views.look(api, ref)
        except NotThere:
            return True
        else:
            workload.free(api, view.stored)
            return True
    return False


def _rendered(stored: Stored, plan: Plan, like: Object, *, level: str = "") -> Started:
    """The Jobs of the plan, the first one first; at the Pod Security level of one that is there."""
    dialect, level = dialects.named(stored.dialect), level or level_of(like)
    return manifests.started_objects(stored.run, plan, stored.shipped, dialect, security_level=level)


def _shape_kept(stored: Stored) -> ShapeKept:
    assert stored.shape is not None
    return ShapeKept(stored.shape.world)
