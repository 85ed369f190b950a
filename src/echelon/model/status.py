"""How a run stands: a pure fold over its events, the same for every engine, the table, the wait and the
dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from echelon.model.event import Event, Outcome, RootCause

State = Literal[
    "recorded",
    "queued",
    "starting",
    "running",
    "restarting",
    "stopping",
    "succeeded",
    "failed",
    "stopped",
    "timed-out",
    "lost",
    "damaged",  # what was written down of it cannot be read; nothing else is known
]
WorkerState = Literal["waiting", "starting", "running", "done", "failed", "stopped", "lost"]
FINAL: frozenset[str] = frozenset({"succeeded", "failed", "stopped", "timed-out", "lost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """How one worker stands."""

    worker: int
    role: str = "worker"
    ranks: tuple[int, ...] = ()
    state: WorkerState = "waiting"
    node: str | None = None
    gpus: tuple[str, ...] = ()
    pid: int | None = None  # of its agent
    rank_pids: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a run stands. `exit_code` is what `run` and `wait` exit with; None while the run goes on."""

    name: str
    uri: str
    state: State = "recorded"
    reason: str | None = None
    command: str = ""
    framework: str | None = None
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    restarts: int = 0
    restarts_allowed: int = 0
    workers: tuple[WorkerStatus, ...] = ()
    root_cause: RootCause | None = None
    exit_code: int | None = None
    results: str | None = None
    held_until: float | None = None  # its workers keep their place for so long, until results are fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One row of `ps`: what is known without reading a log."""

    name: str
    uri: str
    state: State
    created: float
    ended: float | None = None
    workers: int = 1
    gpus: int = 0
    command: str = ""
    reason: str | None = None
    owner: str = ""


def fold(status: Status, events: Iterable[Event]) -> Status:
    """Apply events in order."""
    for event in events:
        status = apply(status, event)
    return status


def apply(status: Status, event: Event) -> Status:
    """The status after one more event. What comes after the end changes nothing."""
    if status.state in FINAL:
        return status
    if event.worker is not None:
        status = replace(status, workers=_update_worker(status.workers, event))
    match event.kind:
        case "queued":
            return replace(status, state="queued", reason=event.reason)
        case "admitted":
            return replace(status, state="starting", reason=None, started=event.at)
        case "waiting" | "holding":
            return replace(
                status, reason=event.reason or status.reason, held_until=event.until or status.held_until
            )
        case "worker-running" if status.state != "stopping":
            all_up = all(worker.state in ("running", "done") for worker in status.workers)
            return replace(
                status,
                state="running" if all_up else status.state,
                reason=None,
                restarts=max(status.restarts, event.restart or 0),
            )
        case "failed":
            return replace(
                status, root_cause=event.cause, reason=event.cause.summary if event.cause else event.reason
            )
        case "restarting":
            return replace(
                status,
                workers=tuple(
                    worker if worker.state == "lost" else replace(worker, state="starting")
                    for worker in status.workers
                ),
                state="restarting",
                restarts=event.restart or 0,
                reason=event.cause.summary if event.cause else event.reason,
            )
        case "stopping":
            return replace(status, state="stopping", reason=event.reason)
        case "finished":
            return _finish(status, event)
        case _:
            return status


def _finish(status: Status, event: Event) -> Status:
    outcome: Outcome = event.outcome or "lost"
    return replace(
        status,
        state=outcome,
        reason=event.cause.summary if event.cause else event.reason,
        ended=event.at,
        root_cause=event.cause if outcome in ("failed", "lost") else None,
        exit_code=event.exit_code,
        workers=tuple(_settle(worker, outcome) for worker in status.workers),
    )


def _settle(worker: WorkerStatus, outcome: Outcome) -> WorkerStatus:
    if worker.state in ("done", "failed", "lost"):
        return worker
    return replace(worker, state="done" if outcome == "succeeded" else "stopped", pid=None, rank_pids={})


def _update_worker(workers: tuple[WorkerStatus, ...], event: Event) -> tuple[WorkerStatus, ...]:
    return tuple(
        _worker_after(worker, event) if worker.worker == event.worker else worker for worker in workers
    )


def _worker_after(worker: WorkerStatus, event: Event) -> WorkerStatus:
    match event.kind:
        case "worker-started":
            return replace(
                worker, state="starting", pid=event.pid, node=event.node or worker.node, reason=None
            )
        case "worker-running":
            return replace(worker, state="running", reason=None, rank_pids=event.pids or {})
        case "worker-ended":
            if worker.state in ("failed", "stopped"):  # of its ranks; the agent itself leaves in order
                return replace(worker, pid=None, rank_pids={})
            return replace(
                worker, state="done" if event.exit_code == 0 else "stopped", pid=None, rank_pids={}
            )
        case "worker-lost":
            return replace(worker, state="lost", reason=event.reason)
        case "rank-ended" if event.reason is not None:  # by itself, not by an order
            return replace(worker, state="failed", reason=event.reason)
        case "rank-ended" if event.exit_code != 0 and worker.state != "failed":
            return replace(worker, state="stopped")
        case _:
            return worker
