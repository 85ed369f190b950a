"""Submission: record the run, then admit it. Nothing is left behind when that fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from echelon.admission import Queued, begin, find_plan, find_way, no_room, shape_to_hold
from echelon.engines.abilities import CopyWatch
from echelon.engines.base import Engine
from echelon.engines.recent import note_started
from echelon.engines.results import results_folder
from echelon.errors import EchelonError, UnknownRun, Unreachable
from echelon.handle import Run
from echelon.preparation.prepare import Prepared
from echelon.preparation.shipping import check_sending, check_waiting, is_sent
from echelon.replacing import free_name
from echelon.reserving import free_folder
from echelon.state_home import check_state_home
from echelon.values import frozen

__all__ = ["Beside", "Prepared", "submit"]

_PATIENCE = 10.0  # seconds for a run that was withdrawn to end


@frozen
class Beside:
    """Objects that a submission brings along, by kinds and names, and the call that makes them: not before
    the run's name is its own, since they may be those of a run that goes on.
    """

    named: frozenset[tuple[str, str]]
    bring: Callable[[], object]


def submit(
    prepared: Prepared,
    engine: Engine,
    *,
    no_wait: bool = False,
    stays: bool = True,
    replace: bool = False,
    tell: Callable[[str], object] = lambda _note: None,
    beside: Beside | None = None,
    sending: CopyWatch | None = None,
) -> Run:
    """Record the run, then admit it or leave it queued. With `replace`, a run of its name that has ended is
    removed first; `tell` is told what became of its results, and what is not known of its start.

    What can never fit is refused before anything exists. If nothing admits a run that must wait, neither the
    engine nor a caller that stays (`stays`), it starts without a place of its own, and the
    scheduler there makes it wait. What it needs `beside` it is made between the two.

    Code that is too large to be recorded is sent when the first worker has started: by a caller that stays,
    else here, so that this call takes until then; `sending` is told of it."""
    check_state_home()
    job = dataclasses.replace(prepared.job, no_wait=no_wait)
    check_sending(job, prepared.bundle, engine.traits)
    engine.check(job, beside.named if beside is not None else ())
    found = find_plan(job, engine, tell=tell)
    if isinstance(found, Queued):
        if no_wait:
            raise no_room(found)
        check_waiting(job, prepared.bundle, engine.traits, found.reason)
    if replace:
        free_name(job, engine, tell)
    free_folder(results_folder(job), job.name, engine)
    way = find_way(job, engine, found, stays=stays)
    held = shape_to_hold(job, engine, found, way)
    ref = engine.record(job, prepared.bundle, held)
    run = Run(ref, engine)
    try:
        if beside is not None:
            beside.bring()
        outcome = begin(ref, engine, found, way, no_wait=no_wait)
    except BaseException as error:  # a full disk, Ctrl-C: nothing is left behind
        if not withdraw(run) and isinstance(error, Unreachable):
            raise _unclear(run, error) from error
        raise
    if isinstance(outcome, Queued):  # another run was faster by a moment
        try:
            check_waiting(job, prepared.bundle, engine.traits, outcome.reason)
        except EchelonError:
            withdraw(run)
            raise
        if no_wait:
            withdraw(run)
            raise no_room(outcome)
    if job.parent is None:  # the newest run of a folder is the one that its user has started
        note_started(str(ref))
    if not stays and is_sent(job, prepared.bundle, engine.traits):
        try:
            run.send_what_it_awaits(sending)
        except BaseException:  # without its code it would wait in vain
            withdraw(run)
            raise
    return run


def withdraw(run: Run) -> bool:
    """Remove a run whose submission failed; False if it may be there all the same."""
    try:
        try:
            run.remove()
        except UnknownRun:
            return True
        except EchelonError:
            run.stop(now=True)
            run.wait(_PATIENCE)
            run.remove()
    except (EchelonError, OSError):
        return False
    return True


def _unclear(run: Run, error: Unreachable) -> Unreachable:
    """The error of a submission whose answers were lost, and of which something may be there: what was seen
    of it last.
    """
    try:
        seen = f"run {run.name!r} is there, and {run.status(progress=False).state}"
    except (EchelonError, OSError):
        seen = f"whether run {run.name!r} is there is not known"
    hint = f"`echelon status {run.name}` shows it, `echelon stop {run.name}` ends it"
    return Unreachable(f"{error.message}; {seen}", hint=hint)
