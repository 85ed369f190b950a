"""The ends of runs, the same for every engine, with or without a leader's verdict.

An end is a `finished` event. A leader's verdict becomes one by `from_verdict`; the other functions are for
what only an engine can know: that the run was stopped, that a worker or the whole run was lost."""

from __future__ import annotations

from dataclasses import replace

from echelon.agent.gang.verdict import LOST_EXIT_CODE, STOPPED_EXIT_CODE, TIMEOUT_EXIT_CODE
from echelon.model.display import duration
from echelon.model.event import CauseKind, Disruption, Event, RootCause


def succeeded(*, at: float) -> Event:
    """All essential ranks ended with 0."""
    return Event(kind="finished", at=at, outcome="succeeded", exit_code=0)


def stopped(reason: str, *, at: float) -> Event:
    """A user asked for the end."""
    return Event(kind="finished", at=at, outcome="stopped", exit_code=STOPPED_EXIT_CODE, reason=reason)


def timed_out(reason: str, *, at: float) -> Event:
    """A time limit has passed."""
    return Event(kind="finished", at=at, outcome="timed-out", exit_code=TIMEOUT_EXIT_CODE, reason=reason)


def not_admitted(limit: float, *, at: float) -> Event:
    """A run was queued for longer than it may be."""
    return timed_out(f"it was queued for {duration(limit)}, and not admitted (--queue-timeout)", at=at)


def not_waiting(reason: str, *, at: float) -> Event:
    """A run that may not wait was admitted, and did not get what it needs."""
    return timed_out(f"it did not start, and may not wait (--no-wait): {reason}", at=at)


def failed(
    summary: str,
    *,
    at: float,
    kind: CauseKind,
    worker: int | None = None,
    exit_code: int = LOST_EXIT_CODE,
) -> Event:
    """The run failed for a reason other than a rank's own failure."""
    cause = RootCause(summary=summary, kind=kind, worker=worker, exit_code=exit_code)
    return Event(kind="finished", at=at, outcome="failed", exit_code=exit_code, cause=cause)


def worker_lost(worker: int, how: str, *, at: float, disruption: Disruption | None = None) -> Event:
    """A worker was lost, and with it the run."""
    end = failed(loss_summary(worker, how), at=at, kind="worker-lost", worker=worker)
    return end if end.cause is None else replace(end, cause=with_loss(end.cause, worker, how, disruption))


def run_lost(summary: str, *, at: float) -> Event:
    """The run ended, and nothing is left that says how."""
    cause = RootCause(summary=summary, kind="run-lost", exit_code=LOST_EXIT_CODE)
    return Event(kind="finished", at=at, outcome="lost", exit_code=LOST_EXIT_CODE, cause=cause)


def from_verdict(verdict: Event, *, at: float, cause: RootCause | None = None) -> Event:
    """The leader's verdict as the end of its run; `cause` may have more than the leader knew."""
    return replace(verdict, kind="finished", at=at, cause=cause or verdict.cause)


def with_loss(cause: RootCause, worker: int, how: str, disruption: Disruption | None) -> RootCause:
    """The cause for a worker that was lost, with what its cluster knows of the loss."""
    known = replace(cause, summary=loss_summary(worker, how))
    return replace(known, kind="worker-evicted", disruption=disruption) if disruption else known


def loss_summary(worker: int, how: str) -> str:
    """The sentence for the loss of a worker."""
    return f"worker {worker} was lost: {how}"


def with_note(end: Event, note: str) -> Event:
    """The end, with what is to be said beside how it ended."""
    if end.cause is not None:
        return replace(end, cause=replace(end.cause, summary=f"{end.cause.summary}; {note}"))
    return replace(end, reason=f"{end.reason}; {note}" if end.reason else note)
