"""Submission: record the run, then admit it. Nothing is left behind when that fails."""

from __future__ import annotations

import contextlib

from echelon.admission import Queued, admit, find_plan
from echelon.engines.base import Engine
from echelon.errors import EchelonError, NoRoomNow
from echelon.handle import Run
from echelon.prepare import Prepared

__all__ = ["Prepared", "submit"]

_PATIENCE = 10.0  # seconds for a run that was withdrawn to end


def submit(prepared: Prepared, engine: Engine, *, no_wait: bool = False, stays: bool = True) -> Run:
    """Record the run, then admit it or leave it queued.

    What can never fit is refused before anything exists. If the engine keeps no queue and the caller does not
    stay (`stays`) to retry, the run starts without a place of its own, and the scheduler there makes it wait.
    """
    found = find_plan(prepared.job, engine)
    if isinstance(found, Queued) and no_wait:
        raise _no_room(found)
    ref = engine.record(prepared.job, prepared.bundle)
    run = Run(ref, engine)
    try:
        nobody_retries = not (no_wait or stays or engine.traits.keeps_queue)
        outcome = admit(ref, engine, found, anywhere=nobody_retries)
    except BaseException:  # a full disk, Ctrl-C: nothing is left behind
        _withdraw(run)
        raise
    if isinstance(outcome, Queued) and no_wait:  # another run was faster by a moment
        _withdraw(run)
        raise _no_room(outcome)
    return run


def _no_room(found: Queued) -> NoRoomNow:
    return NoRoomNow(found.reason, hint="leave --no-wait out to wait in the queue")


def _withdraw(run: Run) -> None:
    """Remove a run whose submission failed."""
    with contextlib.suppress(EchelonError, OSError):
        try:
            run.remove()
        except EchelonError:
            run.stop(now=True)
            run.wait(_PATIENCE)
            run.remove()
