"""Every run of a namespace, for `ps`: from three lists, whatever their number.

Most runs have ended, and their records contain how: Jobs and pods are listed only for the others. Only one
thing cannot be seen from outside: that a run is over while its workers stay for their results. So of a run
that seems to go on, the leader's last lines are read, several at a time; of one whose leader's pod is gone,
what its keeper was told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypedDict, cast

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.between import Between, have_between, read_between
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.client.stream import split_lines
from echelon.engines.kubernetes.diagnose.queueing import find_untended
from echelon.engines.kubernetes.diagnose.trouble import told
from echelon.engines.kubernetes.fields import moment, one_line
from echelon.engines.kubernetes.follow.logs import is_last_line
from echelon.engines.kubernetes.follow.view import is_record, to_view
from echelon.engines.kubernetes.record import Stored, dialect_of, has_end, read
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.task import hold_of
from echelon.engines.kubernetes.state import outcome, workers
from echelon.errors import EchelonError, StateTrouble
from echelon.model.log import parse_line
from echelon.model.run import Record, RunRef, opening_status, summarise
from echelon.model.status import FINAL, RunSummary, Status, fold

_AT_ONCE = 8
_LAST = 3  # lines, of which one is the agent's last if it was written
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


class _PodSpec(TypedDict, total=False):
    nodeName: str
    containers: list[dict[str, Any]]


class _PodOutline(TypedDict, total=False):
    metadata: _Meta
    spec: _PodSpec
    status: dict[str, Any]


def damaged_runs(api: Api, ref_of: Callable[[str], RunRef]) -> list[str]:
    """The names of the runs whose records cannot be read, from one list."""
    selector = f"{names.COMPONENT}={names.RECORD}"
    listed = cast("list[Object]", api.list_shapes("ConfigMap", _RecordOutline, selector=selector))
    found = []
    for name, obj in ((obj["metadata"]["name"], obj) for obj in listed if is_record(obj)):
        try:
            read(obj, ref_of(name))
        except StateTrouble:
            found.append(name)
    return sorted(found)


def list_runs(
    api: Api, ref_of: Callable[[str], RunRef], look: Callable[[RunRef], Status]
) -> list[RunSummary]:
    """The runs, the newest first; `look` finds the state of one from all that is known of it."""
    selector = f"{names.COMPONENT}={names.RECORD}"
    listed = cast("list[Object]", api.list_shapes("ConfigMap", _RecordOutline, selector=selector))
    records = [obj for obj in listed if is_record(obj)]
    going = [obj for obj in records if not has_end(obj)]
    jobs, pods = _workers_of(api, going)
    between = _between(api, going, pods)
    found: list[RunSummary] = []
    held: list[tuple[Record, RunSummary, Object | None]] = []
    for obj in records:
        name = obj["metadata"]["name"]
        try:
            stored = read(obj, ref_of(name))
        except StateTrouble as error:  # of another version, or broken
            found.append(_unreadable(obj, ref_of(name), error))
            continue
        if stored.end is not None:
            found.append(summarise(stored.run, fold(opening_status(stored.run), [stored.end])))
            continue
        try:
            mine = pods.get(name, [])
            view = to_view(stored, jobs.get(name, []), mine, between.get(stored.dialect))
        except StateTrouble as error:
            found.append(_unreadable(obj, ref_of(name), error))
            continue
        stored, own, mine = view.stored, view.jobs, view.pods
        row = _told_untended(outcome.summary(stored, own, mine), stored, own)
        leader = [pod for pod in workers.leader_pods(mine) if workers.is_running(pod)]
        if leader and hold_of(stored.run) > 0:
            held.append((stored.run, row, leader[-1]))
        elif stored.run.job.pod.keeper is not None and own and not workers.leader_pods(mine):
            held.append((stored.run, row, None))
        else:
            found.append(row)
    found += _look_closer(api, held, look)
    return sorted(found, key=lambda each: -each.created)


def is_own(row: RunSummary, identity: str, user: str) -> bool:
    """Whether a run is the asking user's: of the same name in the cluster or, where that is not known, of the
    same local user. A record of an older version has only the latter.
    """
    if identity and row.user:
        return row.owner == identity
    return (row.user or row.owner) in ("", user)


def _told_untended(row: RunSummary, stored: Stored, jobs: Sequence[Object]) -> RunSummary:
    """The row of a run that waits, and that no process looks after, says so."""
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


def _workers_of(api: Api, records: Sequence[Object]) -> tuple[dict[str, list[Object]], ...]:
    """Jobs and pods of these runs, each by its run; others may be among them."""
    if not records:
        return {}, {}
    ours = f"{names.MANAGED_BY}=echelon,{names.COMPONENT}={names.WORKER}"
    if len(records) <= _NAMED:
        ours += f",{names.RUN} in ({','.join(obj['metadata']['name'] for obj in records)})"
    jobs: list[Object] = []
    for kind in dialects.kinds_of(map(dialect_of, records)):
        with suppress(NotThere):  # what a record names, and the cluster does not have
            shapes = cast("list[Object]", api.list_shapes(kind, _JobOutline, selector=ours))
            jobs += [{**job, "kind": kind} for job in shapes]
    pods = cast("list[Object]", api.list_shapes("Pod", _PodOutline, selector=ours))
    return _by_run(jobs), _by_run(pods)


def _between(
    api: Api, records: Sequence[Object], pods: Mapping[str, Sequence[Object]]
) -> dict[str, Between | None]:
    """What controllers made between runs and their pods, by the dialect: one look for all runs of it."""
    runs: dict[str, list[str]] = {}
    for obj in records:
        name, dialect = obj["metadata"]["name"], dialect_of(obj)
        if have_between(dialect, pods.get(name, ())):
            runs.setdefault(dialect, []).append(name)
    return {dialect: read_between(api, dialect, found) for dialect, found in runs.items()}


def _look_closer(
    api: Api, held: Sequence[tuple[Record, RunSummary, Object | None]], look: Callable[[RunRef], Status]
) -> list[RunSummary]:
    def row_of(each: tuple[Record, RunSummary, Object | None]) -> RunSummary:
        record, row, leader = each
        with suppress(EchelonError):
            if is_over(api, leader) if leader is not None else row.state in FINAL:
                return summarise(record, look(record.ref))
        return row

    if not held:
        return []
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(row_of, held))


def is_over(api: Api, leader: Object) -> bool:
    """Whether the leader, given by its pod, has written its last line; it stays to keep its results."""
    name, container = leader["metadata"]["name"], workers.container_name(leader)
    with api.logs(name, container=container, tail=_LAST) as pieces:
        return any(is_last_line(parse_line(raw, 0), 0) for raw in split_lines(pieces, with_rest=True))


def _by_run(items: Sequence[Object]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for item in items:
        found.setdefault((item["metadata"].get("labels") or {}).get(names.RUN, ""), []).append(item)
    return found
