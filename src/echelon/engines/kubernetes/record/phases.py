"""How far a run came that is not admitted, and whether a process looks after it. Pure."""

from __future__ import annotations

from echelon.engines import machine
from echelon.engines.kubernetes.record.values import Claim, Stored

SUBMISSION = 10.0  # seconds within which the client that recorded a run has queued or started it


def is_queued(stored: Stored) -> bool:
    """Whether a run waits to be admitted, with its Jobs."""
    return bool(stored.queued) and not stored.started and stored.stop is None


def is_abandoned(stored: Stored, now: float) -> bool:
    """Whether a run's submission was interrupted a while ago, so that nothing will happen to it."""
    return not stored.may_have_run and not stored.queued and now - stored.run.created > SUBMISSION


def is_free(claim: Claim | None, now: float) -> bool:
    """Whether no process looks after a run: its claim was given up, has expired, or is a dead process's."""
    return claim is None or now >= claim.until or machine.is_dead_process(claim.holder)


def is_untended(stored: Stored, now: float) -> bool:
    """Whether a run is queued and no process will admit it. The client that queued it at this moment, or
    that takes the claim over, is given the time to.
    """
    last = max(stored.tried or 0.0, *(each.at for each in stored.queued), stored.run.created)
    return is_queued(stored) and is_free(stored.claim, now) and now - last > SUBMISSION
