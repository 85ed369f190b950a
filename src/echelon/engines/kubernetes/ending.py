"""The end of a run that a user asks for: stopping it, and forgetting it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from echelon.engines.base import current_user
from echelon.engines.kubernetes import control, objects, record
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files import whereabouts
from echelon.engines.kubernetes.files.results import check_fetched
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.follow import read_events
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.queue import admitting, workload
from echelon.engines.kubernetes.record import Stop
from echelon.engines.kubernetes.state import outcome, workers
from echelon.engines.machine import Submissions
from echelon.errors import Denied, StateTrouble
from echelon.model.event import Event
from echelon.model.run import RunRef, StopSignal


def stop_run(api: Api, ref: RunRef, signal: StopSignal) -> str | None:
    """Write a stop into the record, then order the leader; where that cannot be, end the Jobs."""
    view = views.look(api, ref)
    stored, run = view.stored, view.stored.run
    if _end_of(api, view) is not None:
        return None
    now = signal == "SIGKILL"
    stop = replace(
        stored.stop or Stop(at=round(time.time(), 3), reason=f"stopped by {current_user()}"), now=now
    )
    if stored.stop is None:
        api.patch("ConfigMap", ref.name, record.stopping(stop))
    if view.waiting:
        if admitting.withdraw(api, view, stop):
            return None
        view = views.look(api, ref)  # it was admitted at this moment
    order = json.dumps({"at": stop.at, "reason": stop.reason, "signal": signal, "now": now})
    why = "its leader does not answer"
    try:
        ordered = bool(view.jobs) and control.reach_leader(api, stored, "stop", order)
    except Denied as error:
        ordered, why = False, error.message
        if whereabouts.keeps_results(run) and any(map(workers.is_running, view.pods)):
            reason = f"{stop.reason}; its results went with its pods: {error.message}"
            api.patch("ConfigMap", ref.name, record.stopping(replace(stop, reason=reason)))
    if view.jobs and not ordered:
        control.end_run(api, stored, view.jobs)  # no leader to order, or no right to
        if signal == "SIGINT" and any(map(workers.is_running, view.pods)):
            return f"its pods are ended, and its ranks get SIGTERM, not SIGINT: {why}"
    return None


def remove_run(api: Api, submissions: Submissions, ref: RunRef, *, keep_claim: bool) -> Sequence[str]:
    """Delete every object of a run that has ended; returns the volumes on which there are results."""
    try:
        view = views.look(api, ref)
    except StateTrouble:  # a record that cannot be read
        objects.remove(api, ref.name, keep_claim=True)
        return ()
    _check_over(api, view)
    stored = view.stored
    fetched = stored.collected is not None and bool(stored.collected.path)
    keep_claim = keep_claim or not whereabouts.has_own_claim(stored.run) or not fetched
    objects.remove(api, ref.name, keep_claim=keep_claim, dialect=stored.dialect)
    submissions.forget(stored.uid)
    return whereabouts.kept_volumes(stored.run, keep_own=keep_claim)


def clear_run(api: Api, view: View) -> None:
    """Delete what a run that has ended has beside its record and its volume. Until the record is written anew
    the run has ended as before, so that a resumption can be cut off here and repeated.
    """
    _check_over(api, view)
    name = view.stored.run.ref.name
    api.patch("ConfigMap", name, record.tied([]))  # or it would go with its Jobs
    workload.free(api, view.stored)
    objects.remove(api, name, keep_claim=True, keep_record=True, dialect=view.stored.dialect)


def _check_over(api: Api, view: View) -> None:
    """Raise StateTrouble if the run goes on, or has results that only its pods have."""
    stored, name = view.stored, view.stored.run.ref.name
    phase = record.phase_of(stored, has_jobs=bool(view.jobs), now=time.time())
    if phase == "started":
        goes_on = _end_of(api, view) is None
    else:
        goes_on = stored.stop is None and phase in ("queued", "starting")
    if goes_on:
        raise StateTrouble(f"run {name!r} has not ended", hint=f"`echelon stop {name}` first")
    check_fetched(api, view.stored.run.ref)


def _end_of(api: Api, view: View) -> Event | None:
    """How the run ended, by its objects; None if it has not, or if only its leader's log has it."""
    stored = view.stored
    end = stored.end or outcome.finished_event(stored, view.jobs, view.pods)
    if end is not None or not any(map(workers.has_started, view.pods)):
        return end
    return next((each for each in read_events(api, stored.run.ref) if each.kind == "finished"), None)
