"""Resuming: a run that failed, was stopped or lost starts again as the same job, in the same results."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from echelon.admission import Queued, begin, find_plan, find_way, no_room, shape_to_hold
from echelon.engines.abilities import Delivery
from echelon.engines.base import Engine
from echelon.engines.recent import note_started
from echelon.errors import ResultsIncomplete, StateTrouble
from echelon.model.job import Job
from echelon.model.pods.way_home import keeps_checkpoints
from echelon.model.run import Record, RunRef
from echelon.model.status import FINAL, Status
from echelon.reserving import free_folder
from echelon.state_home import check_state_home


def resume(
    ref: RunRef,
    engine: Engine,
    status: Status,
    *,
    no_wait: bool = False,
    stays: bool = False,
    again: bool = False,
    fetching: Callable[[int, int], object] | None = None,
) -> None:
    """Start the run again, or leave it queued; `status` is how it stands. Raises StateTrouble if it goes on,
    has succeeded (unless that is to be done `again`), or cannot be resumed where it is. `fetching` is told of
    results that are brought home before, since it goes on from them.

    A resumption that was cut off is taken up by the next: the run is ended as before, or recorded and not yet
    started."""
    check_state_home()
    _check(status, again=again)
    record = engine.read(ref)
    job = replace(_next_job(record, status), no_wait=no_wait)
    from_home = engine.traits.remote and keeps_checkpoints(job.pod)
    if from_home and status.state in FINAL:
        with suppress(ResultsIncomplete):  # whether it can go on without what is missing, `reopen` knows
            engine.collect(ref, fetching)
    found = find_plan(job, engine)
    if isinstance(found, Queued) and no_wait:
        raise no_room(found)
    if isinstance(found, Queued) and engine.delivery is not None:
        _check_delivery(ref, engine.delivery, found.reason, from_home=from_home and not stays)
    way = find_way(job, engine, found, stays=stays)
    free_folder(Path(record.results), ref.name, engine)
    engine.reopen(ref, job, shape_to_hold(job, engine, found, way))
    begin(ref, engine, found, way, no_wait=no_wait)
    note_started(str(ref))


def _check(status: Status, *, again: bool) -> None:
    name = status.name
    if status.state == "succeeded" and not again:
        hint = "`echelon run --reuse-results --results DIR` trains another run in its results"
        if status.step_word == "trial":
            hint = "every trial has succeeded; another sweep needs another --name"
        elif status.steps:
            hint = "`echelon notebook run FILE --from STEP` runs a step again, and those after it"
        raise StateTrouble(f"run {name!r} has succeeded: there is nothing to resume", hint=hint)
    if status.state == "damaged":
        raise StateTrouble(f"run {name!r} is damaged: {status.reason}", hint="submit it again")
    if status.state not in (*FINAL, "recorded"):
        raise StateTrouble(
            f"run {name!r} is {status.state}: it has not ended",
            hint=f"`echelon logs -f {name}` follows it; `echelon stop {name}` ends it",
        )


def _check_delivery(ref: RunRef, delivery: Delivery, reason: str, *, from_home: bool) -> None:
    if from_home:
        raise StateTrouble(
            f"the checkpoints of run {ref.name!r} are sent by the command that resumes it, and it would be "
            f"queued: {reason}",
            hint="without -d the command waits with it; or resume it when there is room",
        )
    if delivery.has_code(ref):
        raise StateTrouble(
            f"the code of run {ref.name!r} is sent by the command that starts it, and it has no room now",
            hint="resume it when there is room; code on a volume (--code-volume pvc:NAME) need not be sent",
        )


def _next_job(record: Record, status: Status) -> Job:
    """The job of the next start: in the results that are there, and with ECHELON_RESTART counted on."""
    job = record.job
    if status.state == "recorded":
        return job
    tracking = job.tracking
    if tracking is not None and not tracking.began:
        tracking = replace(tracking, began=record.created)
    earlier = job.earlier + status.restarts + 1
    return replace(job, resume=True, results=record.results, earlier=earlier, tracking=tracking)
