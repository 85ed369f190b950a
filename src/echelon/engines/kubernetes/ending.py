"""The end of a run that a user asks for: stopping it, and forgetting it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from echelon.engines import reservation
from echelon.engines.base import stopped_by
from echelon.engines.kubernetes import control, names, objects, record
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.results import whereabouts
from echelon.engines.kubernetes.files.results.forgetting import check_fetched, check_volume, were_brought
from echelon.engines.kubernetes.files.results.home import as_owner
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.follow import examine, read_events
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.ownership.belonging import describe_left, identity_of, is_for
from echelon.engines.kubernetes.queue import admitting, workload
from echelon.engines.kubernetes.record import Stop
from echelon.engines.kubernetes.shapes import Claim
from echelon.engines.kubernetes.state import whole, workers
from echelon.engines.machine import Submissions
from echelon.errors import Denied, StateTrouble
from echelon.model.event import Event
from echelon.model.grace import grace_in_pods
from echelon.model.run import RunRef, StopSignal

_NAMED = 8  # objects of a run that cannot be removed
_LOOK = 0.2  # seconds between two looks at a run that is being started


def stop_run(
    api: Api, ref: RunRef, signal: StopSignal, grace: float | None = None, *, patient: bool = True
) -> str | None:
    """Write a stop into the record, then order the leader; where that cannot be, end the Jobs. A client that
    is making Jobs of the run at this moment is waited for if `patient`: it ends them itself when it sees the
    stop, unless it is killed.
    """
    view = views.look(api, ref)
    stored = view.stored
    if (end := examine(api, view).end) is not None:
        control.end_jobs(api, whole.left_over(end, stored, view.jobs, view.pods))
        return None
    now = signal == "SIGKILL"
    stop = replace(stored.stop or Stop(at=round(time.time(), 3), reason=stopped_by(signal)), now=now)
    if grace is not None:  # counted from the first stop, as upkeep does
        stop = replace(stop, grace=round(time.time() - stop.at, 3) + grace)
    if stored.stop is None or grace is not None:
        api.patch("ConfigMap", ref.name, record.stopping(stop), uid=stored.uid)
    if view.waiting:
        if admitting.withdraw(api, view, stop):
            return None
        view = views.look(api, ref)  # it was admitted at this moment
    elif patient and whole.is_being_made(stored, view.jobs, time.time()):
        view = _look_when_made(api, ref)
    stored = view.stored  # which has the plan now, and with it the Jobs
    order = json.dumps({"at": stop.at, "reason": stop.reason, "signal": signal, "now": now, "grace": grace})
    why = "its leader does not answer"
    try:
        half = whole.is_half_made(stored, view.jobs)
        ordered = bool(view.jobs) and not half and control.reach_leader(api, stored, "stop", order)
    except Denied as error:
        ordered, why = False, error.message
        if whereabouts.keeps_results(stored.run) and any(map(workers.is_running, view.pods)):
            reason = f"{stop.reason}; its results went with its pods: {error.message}"
            api.patch("ConfigMap", ref.name, record.stopping(replace(stop, reason=reason)), uid=stored.uid)
    if ordered:
        _end_untold(api, view)
    if view.jobs and not ordered:
        control.end_run(api, stored, view.jobs)  # no leader to order, or no right to
        running = any(map(workers.is_running, view.pods))
        if signal == "SIGINT" and running:
            return f"its pods are ended, and its ranks get SIGTERM, not SIGINT: {why}"
        if grace is not None and running:
            known = grace_in_pods(stored.run.job)
            return f"its pods are ended, and its ranks have {known:g} s, not {grace:g} s: {why}"
    return None


def _look_when_made(api: Api, ref: RunRef) -> View:
    """The run, once the client that makes its Jobs has made them or its time is over."""
    deadline = time.monotonic() + record.SUBMISSION
    while True:
        view = views.look(api, ref)
        now = time.time()
        if not whole.is_being_made(view.stored, view.jobs, now) or time.monotonic() > deadline:
            return view
        time.sleep(_LOOK)


def _end_untold(api: Api, view: View) -> None:
    """End the Jobs beside the leader's of a run that was stopped before all workers had come: those that come
    after the leader has left would wait for it. No rank has run, so that no results are lost.
    """
    others = whole.other_jobs(view.stored, view.jobs)
    if others and whole.none_ran(read_events(api, view.stored.run.ref)):
        control.end_jobs(api, others)


def remove_run(
    api: Api, submissions: Submissions, ref: RunRef, tell: Callable[[str], object], *, force: bool = False
) -> Sequence[str]:
    """Delete every object of a run that has ended; returns the volumes on which there are results. A volume
    that was made for it goes only if this machine has fetched what is on it: what the record says of that,
    anybody may have written. With `force`, results that were not fetched go too.
    """
    try:
        view = views.look(api, ref)
    except StateTrouble as error:
        return _remove_unreadable(api, ref, error, tell, force=force)
    stored = view.stored
    _check_over(api, view)
    end: objects.ClaimEnd = "keep"
    if not force:
        check_fetched(api, submissions, stored, tell)
    if whereabouts.has_own_claim(stored.run):
        if not force:
            check_volume(api, submissions, stored)
        end = "delete" if force or were_brought(submissions, stored) else "if-unused"
    removed = objects.remove(api, record.identity(stored), claim=end, dialect=stored.dialect)
    _tell_left(ref, removed, tell)
    if (home := submissions.results_of(stored.uid)) is not None:
        reservation.forget(home, as_owner(stored.run, api.access.context))
    submissions.forget(stored.uid)
    return whereabouts.kept_volumes(stored.run, keep_own=removed.claim)


def _remove_unreadable(
    api: Api, ref: RunRef, error: StateTrouble, tell: Callable[[str], object], *, force: bool
) -> Sequence[str]:
    """Delete what belongs to a record that cannot be read, or that a newer version wrote; a claim stays. What
    the run is at cannot be known: while anything of it lives, or may, it is not touched, but by `force`.
    """
    found = views.get_object(api, ref)
    run, dialect = identity_of(found), record.dialect_of(found)
    living = [] if force else objects.find_living(api, run, dialect)
    if living:
        named = ", ".join(f"{each['kind']} {each['metadata']['name']}" for each in living[:_NAMED])
        raise StateTrouble(
            f"{error.message}; and it is not over: {named}{', ...' if len(living) > _NAMED else ''}",
            hint=f"{error.hint}; `echelon rm --force {ref.name}` ends all of it, and results that only its "
            "pods have are lost",
        )
    removed = objects.remove(api, run, claim="keep", dialect=dialect)
    _tell_left(ref, removed, tell)
    claim = None
    with suppress(Denied):
        claim = api.find_shape("PersistentVolumeClaim", Claim, names.claim_name(ref.name))
    return (f"pvc:{names.claim_name(ref.name)}",) if claim is not None and is_for(claim.metadata, run) else ()


def _tell_left(ref: RunRef, removed: objects.Removed, tell: Callable[[str], object]) -> None:
    if removed.left:
        tell(describe_left(ref.name, removed.left))


def clear_run(api: Api, submissions: Submissions, view: View) -> None:
    """Delete what a run that has ended has beside its record and its volume. Until the record is written anew
    the run has ended as before, so that a resumption can be cut off here and repeated: what its Jobs say is
    kept, and the record goes with them no more.
    """
    stored = view.stored
    end = _check_over(api, view)
    check_fetched(api, submissions, stored)
    kept = record.finished(end, plan=stored.run.plan) if end is not None else {}
    api.patch("ConfigMap", stored.run.ref.name, kept | record.tied([]), uid=stored.uid)
    workload.free(api, stored)
    objects.remove(api, record.identity(stored), claim="keep", keep_record=True, dialect=stored.dialect)


def _check_over(api: Api, view: View) -> Event | None:
    """How the run has ended; None if it never began. Raises StateTrouble if it goes on."""
    stored, name = view.stored, view.stored.run.ref.name
    begun = stored.may_have_run or stored.stop is not None
    end = examine(api, view).end if begun else None
    if (stored.may_have_run and end is None) or record.is_queued(stored):
        raise StateTrouble(f"run {name!r} has not ended", hint=f"`echelon stop {name}` first")
    return end
