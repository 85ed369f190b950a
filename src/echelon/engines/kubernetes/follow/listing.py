"""Every run of a namespace, for `ps`: from a few lists, whatever their number.

Most runs have ended, and their records contain how. Anybody may have written that: it counts if the run's
Jobs bear it out and no pod of it is alive, and pods are listed only for the others. Only one thing cannot be
seen from outside: that a run is over while its workers stay for their results. So of a run that seems to go
on, the leader's last lines are read, several at a time; and all that can be known of one where that leaves
it open."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, cast

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.client.beside import beside
from echelon.engines.kubernetes.fields import moment, one_line
from echelon.engines.kubernetes.follow.evidence import evidence, glance
from echelon.engines.kubernetes.follow.view import is_record, to_view
from echelon.engines.kubernetes.ownership.between import Between, have_between, read_between
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored, dialect_of, has_end, read
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.shapes import Named
from echelon.engines.kubernetes.state.standing import Evidence, Standing, standing, with_doubt
from echelon.errors import Denied, EchelonError, StateTrouble
from echelon.model.event import Event
from echelon.model.run import Record, RunRef, opening_status, summarise
from echelon.model.status import FINAL, RunSummary, Status, fold
from echelon.model.world import gpu_count, worker_count

_AT_ONCE = 8
_WORKERS = f"{names.MANAGED_BY}=echelon,{names.COMPONENT}={names.WORKER}"
_NAMED = 50  # runs that a selector names one by one; with more, all are asked for


# Of objects, what a row is made of: a thousand whole ones would take a hundred megabytes.
class _Meta(TypedDict, total=False):
    name: str
    uid: str
    labels: dict[str, str]
    annotations: dict[str, str]
    creationTimestamp: str
    deletionTimestamp: str
    ownerReferences: list[dict[str, Any]]


class _RecordOutline(TypedDict, total=False):
    metadata: _Meta
    data: dict[str, str]


class _JobSpec(TypedDict, total=False):
    suspend: bool
    completions: int
    runPolicy: dict[str, Any]


class _JobOutline(TypedDict, total=False):
    metadata: _Meta
    spec: _JobSpec
    status: dict[str, Any]


def damaged_runs(api: Api, ref_of: Callable[[str], RunRef]) -> list[str]:
    """The names of the runs whose records cannot be read, from one list."""
    found = []
    for obj in _records(api):
        name = obj["metadata"]["name"]
        try:
            read(obj, ref_of(name))
        except StateTrouble:
            found.append(name)
    return sorted(found)


def list_runs(
    api: Api,
    ref_of: Callable[[str], RunRef],
    look: Callable[[RunRef], Status],
    is_mine: Callable[[RunSummary, str], bool] = lambda _row, _uid: True,
) -> list[RunSummary]:
    """The runs, the newest first; `look` finds the state of one from all that is known of it, `is_mine` says
    whether one is the asking user's, by its row and the uid of its record.
    """
    jobs_of_all = beside(partial(_jobs_of_kind, api, "Job"))  # nearly every run has one
    records = _records(api)
    ended = {obj["metadata"]["name"] for obj in records if has_end(obj)}
    alive, keepers = _alive(api) if ended else (set[str](), set[str]())
    ended -= alive
    going = [obj for obj in records if obj["metadata"]["name"] not in ended]
    jobs, pods = _jobs_of(api, records, jobs_of_all, needed=bool(going)), _pods_of(api, going)
    between = _between(api, going, pods)
    found: list[RunSummary] = []
    closer: list[Callable[[], RunSummary]] = []
    for obj in records:
        name = obj["metadata"]["name"]
        try:
            stored = read(obj, ref_of(name))
            if stored.end is not None and jobs is None:  # nothing else may be read
                found.append(_row_of_end(stored.run, stored.end))
                continue
            seen = between.get(stored.dialect)
            view = to_view(stored, (jobs or {}).get(name, []), pods.get(name, []), seen)
        except StateTrouble as error:  # of another version, or broken
            found.append(_unreadable(obj, ref_of(name), error))
            continue
        known = replace(
            evidence(view), ended_pods=name not in ended, keeper=name not in ended or name in keepers
        )
        now = standing(known, time.time())
        if now.lacks:
            closer.append(partial(_look_at, api, known, now, look))
        else:
            found.append(_row(known, now))
    found += _look_closer(closer)
    uids = {obj["metadata"]["name"]: str(obj["metadata"].get("uid") or "") for obj in records}
    found = [replace(each, own=is_mine(each, uids[each.name])) for each in found]
    return sorted(found, key=lambda each: -each.created)


def _records(api: Api) -> list[Object]:
    selector = f"{names.COMPONENT}={names.RECORD}"
    listed = cast("list[Object]", api.list_shapes("ConfigMap", _RecordOutline, selector=selector))
    return [obj for obj in listed if is_record(obj)]


def _row(known: Evidence, found: Standing) -> RunSummary:
    """The row that lists a run among others."""
    stored, run = known.stored, known.stored.run
    if (end := found.end) is not None:
        if found.doubt and known.jobs:  # those of most runs of a year are deleted
            end = with_doubt(end, found)
        return _row_of_end(run, end)
    row = summarise(run, replace(opening_status(run), state=found.state, reason=found.reason))
    if run.plan is None and stored.shape is not None:  # that its Jobs wait in
        shape = stored.shape.world
        row = replace(row, workers=worker_count(shape), gpus=gpu_count(shape))
    return _told_untended(row, stored, known.jobs)


def _look_at(api: Api, known: Evidence, before: Standing, look: Callable[[RunRef], Status]) -> RunSummary:
    """The row of a run of which the lists lack something: the last lines of its leader's log or, if it is
    over by those or they lack something too, all that can be known of it.
    """
    found = before
    with suppress(EchelonError):
        found = glance(api, known)
        if found.lacks:
            status = look(known.stored.run.ref)
            if status.state in FINAL or found.end is not None:
                return summarise(known.stored.run, status)
    return _row(known, found)


def _row_of_end(run: Record, end: Event) -> RunSummary:
    return summarise(run, fold(opening_status(run), [end]))


def is_own(row: RunSummary, identity: str, user: str) -> bool:
    """Whether a run is the asking user's: of the same name in the cluster or, where that is not known, of the
    same local user. A record of an older version has only the latter, one that cannot be read the former.
    """
    if identity and (row.user or row.owner == identity):
        return row.owner == identity
    return (row.user or row.owner) in ("", user)


def _told_untended(row: RunSummary, stored: Stored, jobs: Sequence[Object]) -> RunSummary:
    """The row of a run that waits, and that no process looks after, says so."""
    from echelon.engines.kubernetes.diagnose.queueing import find_untended
    from echelon.engines.kubernetes.diagnose.trouble import told

    found = find_untended(stored, jobs, now=time.time())
    return row if found is None else replace(row, reason=told(found), trouble=found.kind)


def _unreadable(obj: Object, ref: RunRef, error: StateTrouble) -> RunSummary:
    """The row of a run whose record cannot be read: one line, and no trouble for the others."""
    about = obj["metadata"]
    return RunSummary(
        name=ref.name,
        uri=str(ref),
        state="damaged",
        created=moment(about.get("creationTimestamp")) or 0.0,
        workers=0,
        reason=f"{error.message}; {error.hint}",
        owner=one_line((about.get("annotations") or {}).get(names.OWNER)),
    )


def _jobs_of(
    api: Api, records: Sequence[Object], jobs_of_all: Callable[[], list[Object]], *, needed: bool
) -> dict[str, list[Object]] | None:
    """The objects that workers of these runs are made of, each by its run; others may be among them. None
    where they may not be read and are not needed.
    """
    found: list[Object] = []
    for kind in dialects.kinds_of(map(dialect_of, records)) if records else ():
        try:
            found += jobs_of_all() if kind == "Job" else _jobs_of_kind(api, kind)
        except NotThere:  # what a record names, and the cluster does not have
            continue
        except Denied:
            if needed:
                raise
            return None
    return _by_run(found)


def _jobs_of_kind(api: Api, kind: str) -> list[Object]:
    shapes = cast("list[Object]", api.list_shapes(kind, _JobOutline, selector=_WORKERS))
    return [{**job, "kind": kind} for job in shapes]


def _pods_of(api: Api, records: Sequence[Object]) -> dict[str, list[Pod]]:
    """The pods of these runs, each by its run; others may be among them."""
    if not records:
        return {}
    found: dict[str, list[Pod]] = {}
    for pod in api.list_shapes("Pod", Pod, selector=_workers_of(records)):
        found.setdefault(pod.metadata.labels.get(names.RUN, ""), []).append(pod)
    return found


def _workers_of(records: Sequence[Object]) -> str:
    """The selector of these runs' workers, or of all runs' if there are many."""
    if len(records) > _NAMED:
        return _WORKERS
    return f"{_WORKERS},{names.RUN} in ({','.join(obj['metadata']['name'] for obj in records)})"


def _between(
    api: Api, records: Sequence[Object], pods: Mapping[str, Sequence[Pod]]
) -> dict[str, Between | None]:
    """What controllers made between runs and their pods, by the dialect: one look for all runs of it."""
    runs: dict[str, list[str]] = {}
    for obj in records:
        name, dialect = obj["metadata"]["name"], dialect_of(obj)
        if have_between(dialect, pods.get(name, ())):
            runs.setdefault(dialect, []).append(name)
    return {dialect: read_between(api, dialect, found) for dialect, found in runs.items()}


def _alive(api: Api) -> tuple[set[str], set[str]]:
    """The runs of which pods say that they are workers, or keepers, and are not over; anybody may label a pod
    so.
    """
    ours = f"{names.MANAGED_BY}=echelon,{names.COMPONENT} in ({names.WORKER},{names.KEEPER})"
    alive = "status.phase!=Succeeded,status.phase!=Failed"
    try:
        pods = api.list_shapes("Pod", Named, selector=ours, fields=alive)
    except Denied:  # then records are all that can be read
        return set(), set()
    found: dict[str, set[str]] = {names.WORKER: set(), names.KEEPER: set()}
    for labels in (pod.metadata.labels for pod in pods):
        found[labels[names.COMPONENT]].add(labels.get(names.RUN, ""))
    return found[names.WORKER], found[names.KEEPER]


def _look_closer(looks: Sequence[Callable[[], RunSummary]]) -> list[RunSummary]:
    if not looks:
        return []
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda each: each(), looks))


def _by_run(items: Sequence[Object]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for item in items:
        found.setdefault((item["metadata"].get("labels") or {}).get(names.RUN, ""), []).append(item)
    return found
