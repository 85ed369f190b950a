"""How far the submission of a run came, and whether a process looks after it. Pure."""

from __future__ import annotations

from typing import Literal

from echelon.engines import machine
from echelon.engines.kubernetes.record.values import Claim, Stored

SUBMISSION = 10.0  # seconds within which the client that recorded a run has queued or started it


Phase = Literal["recorded", "queued", "starting", "started"]


def phase_of(stored: Stored, *, has_jobs: bool, now: float) -> Phase:
    """How far the submission of a run came. A plan without Jobs is of a start that was cut off, unless it is
    so young that the client is still at it; a run that was queued before that is queued again.
    """
    if has_jobs or stored.started:
        return "started"
    if stored.admitted is not None and now - stored.admitted < SUBMISSION:
        return "starting"
    return "queued" if stored.queued else "recorded"


def is_abandoned(stored: Stored, *, has_jobs: bool, now: float) -> bool:
    """Whether a run's submission was interrupted a while ago, so that nothing will happen to it."""
    last = stored.admitted or stored.run.created
    return phase_of(stored, has_jobs=has_jobs, now=now) == "recorded" and now - last > SUBMISSION


def is_free(claim: Claim | None, now: float) -> bool:
    """Whether no process looks after a run: its claim was given up, has expired, or is a dead process's."""
    return claim is None or now >= claim.until or machine.is_dead_process(claim.holder)


def is_untended(stored: Stored, *, has_jobs: bool, now: float) -> bool:
    """Whether a run is queued and no process will admit it. The client that queued it at this moment, or
    that takes the claim over, is given the time to.
    """
    waits = phase_of(stored, has_jobs=has_jobs, now=now) == "queued" and stored.stop is None
    last = max(stored.tried or 0.0, *(each.at for each in stored.queued), stored.run.created)
    return waits and is_free(stored.claim, now) and now - last > SUBMISSION
