"""What the Jobs of a run say of its admission, and every change that is made to them. Pure.

The plan, when the run was admitted, why it waits and that all of its pods had nodes are annotations of its
first Job, whatever kind it is of. So there is one ledger, and a process that may only patch Jobs can admit a
run of any user. `with_jobs` folds what the Jobs say into the record.

A run waits while its first Job is suspended and was not admitted since the last try. Where a command admits
it, its Jobs are made so; those of a run that starts at once are admitted from the beginning, and left to the
scheduler (`whole`): nothing rolls them back. Changes carry the version of the Job that they were decided on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from echelon.engines.base import RunDamaged
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import json_object
from echelon.engines.kubernetes.ownership.belonging import belongs
from echelon.engines.kubernetes.record import (
    Stop,
    Stored,
    Waiting,
    check_plan,
    identity,
    read_moment,
    read_stop,
    read_waits,
)
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.task import read_plan
from echelon.engines.kubernetes.suspended import is_suspended
from echelon.model.plan import Plan

Object = dict[str, Any]
_THEIRS_TO_CHANGE = (
    "affinity",
    "tolerations",
    "nodeSelector",
)  # of a suspended Job's pods, beside annotations and resources


# Reading


def with_jobs(stored: Stored, jobs: Iterable[Mapping[str, Any]]) -> Stored:
    """The record, with what the run's Jobs say. A run whose first Job is suspended is not admitted, and has
    no plan yet; unless it was suspended from outside after it was admitted. What the record itself has of a
    run that has ended stays where no Job is left.
    """
    first = _first(stored, jobs)
    if first is None:
        return stored
    notes = first["metadata"].get("annotations") or {}
    if names.PLAN not in notes and stored.run.plan is not None:
        return stored  # of an older version, which keeps it in the record
    plan = _read_plan(stored, notes.get(names.PLAN))
    stored = replace(
        stored,
        run=replace(stored.run, plan=None),
        shape=plan,
        queued=read_waits(notes.get(names.WAITS)),
        tried=read_moment(notes.get(names.TRIED)),
        stop=stored.stop or read_stop(notes.get(names.WITHDRAWN)),
        whole=names.WHOLE in notes,
    )
    admitted = read_moment(notes.get(names.ADMITTED))
    idle = is_suspended(first) or dialects.of(first).is_withdrawn(first)
    if idle and not _is_later(admitted, stored.tried):
        return stored
    return replace(stored, run=replace(stored.run, plan=plan), admitted=admitted or stored.run.created)


def _is_later(admitted: float | None, tried: float | None) -> bool:
    """Whether a run was admitted since it waited last, as its Jobs have it: roll-backs are noted there.
    If they are suspended then, others did it.
    """
    return admitted is not None and (tried is None or tried < admitted)


def waiting_jobs(stored: Stored, jobs: Iterable[Object]) -> list[Object]:
    """The Jobs of a run that is not admitted, the first one first; those, too, that its shape has no use for
    now.
    """
    if stored.run.plan is not None:
        return []
    mine = [job for job in jobs if belongs(job, identity(stored)) and is_suspended(job)]
    return sorted(mine, key=lambda job: job["metadata"]["name"] != stored.run.ref.name)


def first_of(jobs: Sequence[Object], run: str) -> Object | None:
    """The Job whose annotations tell how its run stands."""
    return next((job for job in jobs if job["metadata"]["name"] == run), None)


def _first(stored: Stored, jobs: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    mine = (job for job in jobs if job["metadata"]["name"] == stored.run.ref.name)
    return next((job for job in mine if belongs(job, identity(stored))), None)


def _read_plan(stored: Stored, text: object) -> Plan:
    plan = read_plan(str(text or ""))
    if plan is None:
        raise RunDamaged(stored.run.ref.name, "its first Job has no plan that can be read")
    try:
        check_plan(plan)
    except ValueError as error:
        raise RunDamaged(stored.run.ref.name, f"its plan cannot be: {error}") from error
    return plan


# Changes


def started(job: Object, wanted: Object, *, at: float, template: bool = True) -> Object:
    """The Job starts, in the shape and on the nodes that `wanted` was rendered for. Without `template`, its
    pods stay as they are: some servers allow no change of them any more.
    """
    spec = {key: wanted["spec"][key] for key in ("completions", "parallelism", "maxFailedIndexes")}
    changed = template_change(job["spec"]["template"], wanted["spec"]["template"]) if template else {}
    about = wanted["metadata"]["annotations"]
    kept = (names.PLAN, names.NODES, names.FIRST_WORKER)
    change = _noted(job, {key: about.get(key) for key in kept} | {names.ADMITTED: str(at)})
    change["spec"] = {**spec, "suspend": False, **({"template": changed} if changed else {})}
    return change


def template_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> Object:
    """What of the pods follows the plan, as a merge patch; empty where nothing of it differs."""
    before, after = old["metadata"].get("annotations") or {}, new["metadata"]["annotations"]
    wanted = {names.FIRST_WORKER: after.get(names.FIRST_WORKER)}
    if names.AGENTS_TASK in after:  # else it is in the record
        wanted[names.AGENTS_TASK] = with_groups(before.get(names.AGENTS_TASK), after[names.AGENTS_TASK])
    notes = {key: value for key, value in wanted.items() if before.get(key) != value}
    pod: Object = {}
    for field in _THEIRS_TO_CHANGE:
        if old["spec"].get(field) != new["spec"].get(field):
            pod[field] = _replacing(old["spec"].get(field), new["spec"].get(field))
    sizes = {each["name"]: each.get("resources") or {} for each in new["spec"]["containers"]}
    containers = old["spec"]["containers"]
    resized = [_resized(each, sizes.get(each["name"])) for each in containers]
    if resized != containers:
        pod["containers"] = resized
    change: Object = {"metadata": {"annotations": notes}} if notes else {}
    return {**change, "spec": pod} if pod else change


def with_task_of(job: Object, made: Object) -> Object:
    """A Job that replaces one of its run's: its agents' task stays as far as it does not follow the plan."""
    notes = made["spec"]["template"]["metadata"]["annotations"]
    old = (job["spec"]["template"]["metadata"].get("annotations") or {}).get(names.AGENTS_TASK)
    if old is not None and names.AGENTS_TASK in notes:
        notes[names.AGENTS_TASK] = with_groups(old, notes[names.AGENTS_TASK])
    return made


def is_resized(job: Object, wanted: Object) -> bool:
    """Whether the Job's workers would have another size, or other work."""
    change = template_change(job["spec"]["template"], wanted["spec"]["template"])
    return "metadata" in change or "containers" in change.get("spec", {})


def rolled_back(job: Object, waits: Sequence[Waiting], *, at: float) -> Object:
    """The Job waits again, and its pods go; `waits` is why, for the first Job of a run."""
    change = queued(job, waits, at=at) if waits else _noted(job, {})
    change["metadata"]["annotations"][names.WHOLE] = None
    change["spec"] = {"suspend": True}
    return change


def queued(job: Object, waits: Sequence[Waiting], *, at: float) -> Object:
    """Admission was tried: why the run waits."""
    return _noted(job, {names.WAITS: _json(waits), names.TRIED: str(at)})


def withdrawn(job: Object, stop: Stop) -> Object:
    """The run leaves the queue for good: the Job ends without a pod."""
    return _noted(job, {names.WITHDRAWN: _json(stop)}) | dialects.of(job).withdrawn()


def seen_whole(job: Object, *, at: float) -> Object:
    """All pods of the gang have nodes: what is lost from now on is replaced, and nothing rolled back."""
    return _noted(job, {names.WHOLE: str(at)})


def _noted(job: Object, annotations: Mapping[str, str | None]) -> Object:
    version = job["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version, "annotations": dict(annotations)}}


def with_groups(old: str | None, new: str) -> str:
    """The task that travels with a run's agents, for another plan. Only the groups depend on that; all else
    stays as the client wrote it that shipped the agents: this process may be of another version.
    """
    task, groups = json_object(old or ""), json_object(new).get("groups")
    return json.dumps({**task, "groups": groups}) if task.get("groups") != groups else old or new


def _resized(container: Object, resources: Object | None) -> Object:
    if resources is None or (container.get("resources") or {}) == resources:
        return container
    return {**container, "resources": resources}


def _replacing(old: object, new: object) -> object:
    """The merge patch that turns one value into the other: what is missing must be named."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    gone: Object = dict.fromkeys(old.keys() - new.keys())
    return gone | {key: _replacing(old.get(key), value) for key, value in new.items()}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
