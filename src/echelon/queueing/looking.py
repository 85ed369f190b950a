"""The queue for people: every run that waits, its position, why, and when it could start. Reads only."""

from __future__ import annotations

from dataclasses import replace

from echelon.engines.abilities import QueueSnapshot
from echelon.engines.base import Engine
from echelon.model.engine.cluster import Cluster
from echelon.model.job import Job, gpus_asked
from echelon.model.queue import HoldingRun, Place, QueuedRun
from echelon.model.run import RunRef, opening_status, parse_uri
from echelon.model.status import FINAL, RunSummary, fold
from echelon.model.world import gpu_count
from echelon.queueing.policy import places
from echelon.queueing.room import ClusterRoom


def look(engine: Engine) -> QueueSnapshot:
    """The queue of an engine. Where each run is admitted by a process of its own, no run overtakes."""
    if engine.queueing is not None:
        return engine.queueing.look()
    rows = engine.runs()
    waiting = [_queued(engine, row) for row in rows if row.state == "queued"]
    ended = (*FINAL, "queued", "damaged", "recorded")
    holding = [_holding(engine, row) for row in rows if row.state not in ended and row.gpus]
    seen: list[Cluster] = []

    def view(_job: Job) -> Cluster:
        if not seen:
            seen.append(engine.cluster())
        return seen[0]

    return QueueSnapshot(waiting=waiting, holding=holding, view=view)


def standing(snapshot: QueueSnapshot, now: float) -> list[Place]:
    """Where each run stands, as the rules decide on what this user can see."""
    runs = {run.name: run for run in snapshot.waiting}
    found = []
    for place in places(snapshot.waiting, snapshot.holding, ClusterRoom(view=snapshot.view), now):
        run = runs[place.name]
        if place.why == "starts" or not snapshot.view(run.job).known:
            earliest = place.earliest if snapshot.view(run.job).known else None
            found.append(replace(place, reason=run.noted, earliest=earliest))
        else:
            found.append(place)
    known = {place.name for place in found}
    elsewhere = [place for place in snapshot.elsewhere if place.name not in known]
    ours = sorted(found, key=lambda place: (place.position, place.name))
    return [*ours, *sorted(elsewhere, key=lambda place: (place.since, place.name))]


def _queued(engine: Engine, row: RunSummary) -> QueuedRun:
    record = engine.read(_ref(row))
    return QueuedRun(
        name=row.name,
        job=record.job,
        since=record.created,
        gpus=gpus_asked(record.job),
        priority=record.job.priority,
        user=record.owner,
        noted=row.reason or "",
    )


def _holding(engine: Engine, row: RunSummary) -> HoldingRun:
    ref = _ref(row)
    record = engine.read(ref)
    started = fold(opening_status(record), engine.events(ref)).started
    limit = record.job.timeout
    return HoldingRun(
        name=row.name,
        gpus=row.gpus if record.plan is None else gpu_count(record.plan.world),
        user=record.owner,
        ends=None if limit is None or started is None else started + limit,
    )


def _ref(row: RunSummary) -> RunRef:
    return parse_uri(row.uri, "")
