"""How a run in a cluster stands and ended, from its record, Jobs and pods alone: no log is read. Pure.

`ps` and whoever comes when the leader is gone ask here. This is also the face of `workers`, which reads the
single pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from echelon.agent.gang.verdict import LOST_EXIT_CODE, STOPPED_EXIT_CODE, TIMEOUT_EXIT_CODE
from echelon.agent.task import NO_LEADER, RUN_OVER, TOLD_TO_LEAVE
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.fields import conditions, json_object, moment, one_line
from echelon.engines.kubernetes.state.workers import (
    DELETED,
    ContainerEnd,
    container_end,
    has_ended,
    has_started,
    is_cut_off,
    is_running,
    leader_pods,
    loss_of,
    loss_time,
    memory_limit,
    node_name,
    pods_by_worker,
    taken_away,
    worker_of,
)
from echelon.model.event import Event, Outcome, RootCause
from echelon.model.run import Record, opening_status, summarise
from echelon.model.status import RunSummary, State, apply

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object

__all__ = [
    "ContainerEnd",
    "JobEnd",
    "Stop",
    "container_end",
    "explain",
    "finished_event",
    "has_ended",
    "has_started",
    "is_running",
    "job_end",
    "leader_pods",
    "loss_of",
    "pods_by_worker",
    "read_stop",
    "summary",
    "verdict_of",
    "worker_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How the Job controller ended a run's Jobs; not `final` while some of their pods still leave."""

    outcome: Literal["complete", "failed"]
    reason: str = ""
    message: str = ""
    at: float = 0.0
    final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Somebody's word, left in the record, that the run is to end; `outcome` is what it ends as then."""

    at: float
    reason: str
    outcome: Literal["stopped", "failed"] = "stopped"


def read_stop(record_object: Object) -> Stop | None:
    """The word to stop in a run's record, if there is one."""
    text = (record_object["metadata"].get("annotations") or {}).get(names.STOP)
    if not text:
        return None
    word = json_object(text)
    at = word.get("at")
    return Stop(
        at=float(at) if isinstance(at, int | float) else 0.0,
        reason=one_line(word.get("reason")) or "stopped",
        outcome="failed" if word.get("outcome") == "failed" else "stopped",
    )


def verdict_of(pods: Iterable[Object]) -> dict[str, Any] | None:
    """What the leader decided, as it left it behind; None if it did not, or nobody can read it."""
    for pod in reversed(leader_pods(pods)):
        end = container_end(pod)
        said = json_object(end.message) if end else {}
        if said.get("outcome") in get_args(Outcome):
            return said
    return None


def job_end(jobs: Sequence[Object]) -> JobEnd | None:
    """How the Jobs of a run ended; None while they may still bring it to its end."""
    found = [conditions(job) for job in jobs]
    for name, final in (("Failed", True), ("FailureTarget", False)):
        ended = [each[name] for each in found if name in each]
        if ended:
            return _to_job_end("failed", min(ended, key=_changed), final=final)
    met = [each.get("Complete") or each.get("SuccessCriteriaMet") for each in found]
    if met and all(met):
        last = max((each for each in met if each), key=_changed)
        return _to_job_end("complete", last, final=all("Complete" in each for each in found))
    return None


def finished_event(
    record: Record, record_object: Object, jobs: Sequence[Object], pods: Sequence[Object]
) -> Event | None:
    """The end of a run, as far as its objects tell; None while it goes on, or its leader still leaves."""
    stop, verdict, end = read_stop(record_object), verdict_of(pods), job_end(jobs)
    leaders = leader_pods(pods)
    left = container_end(leaders[-1]) if leaders else None
    told = left.at if left is not None and left.exit_code in (0, RUN_OVER) else 0.0
    at = told or (end.at if end is not None else left.at if left is not None else 0.0)
    if verdict is not None:
        return _from_verdict(verdict, stop, pods, at=at)
    if (left is not None and left.exit_code == 0) or (end is not None and end.outcome == "complete"):
        return Event(kind="finished", at=at, outcome="succeeded", exit_code=0)
    over = left is not None and left.exit_code in (RUN_OVER, NO_LEADER)
    if end is not None and not end.final:
        # Its pods are being deleted. A leader may still say why, unless its node is gone with it.
        over = over or not leaders or has_ended(leaders[-1]) or is_cut_off(leaders[-1])
    elif end is not None:
        over = True
    if stop is not None and (over or not jobs):
        return stopped(stop, at=max(at, stop.at))
    if not jobs and not pods and _was_started(record_object):
        at = moment(record_object["metadata"].get("deletionTimestamp")) or record.created
        return _lost("lost", "its Job was deleted by somebody, and the workers with it", at=at)
    if not over:
        return None
    if end is not None and end.reason == "DeadlineExceeded":
        words = "its Job has a deadline, which has passed (activeDeadlineSeconds)"
        return Event(kind="finished", at=at, outcome="timed-out", exit_code=TIMEOUT_EXIT_CODE, reason=words)
    return _without_verdict(end, pods, at=at)


def explain(cause: RootCause, pods: Iterable[Object]) -> RootCause:
    """The same cause with what only the cluster knows of it: how a worker was lost, which limit was hit."""
    mine = pods_by_worker(pods).get(cause.worker, []) if cause.worker is not None else []
    if cause.rank is None:
        how = next(filter(None, (loss_of(pod) for pod in reversed(mine))), None)
        told = cause.summary.endswith(TOLD_TO_LEAVE)
        if how == DELETED and not told:
            how = None  # with the run that ended by its loss: an agent whose pod is deleted says so first
        if how is None and told:  # a leader that decides this over itself
            how = next(filter(None, map(taken_away, reversed(mine))), None)
        if how is not None:
            return replace(cause, summary=f"worker {cause.worker} was lost: {how}")
        node = mine[-1]["spec"].get("nodeName") if mine else None
        return replace(cause, summary=f"{cause.summary} (on node {node})") if node else cause
    for pod in reversed(mine):
        end, limit = container_end(pod), memory_limit(pod)
        if end is not None and end.reason == "OOMKilled" and limit and cause.signal == "SIGKILL":
            words = f"rank {cause.rank} was killed by SIGKILL: out of memory, the limit is {limit}"
            return replace(cause, summary=words)
    return cause


def summary(
    record: Record, record_object: Object, jobs: Sequence[Object], pods: Sequence[Object]
) -> RunSummary:
    """The row that lists a run among others: how it stands, as near as its objects tell."""
    status = opening_status(record)
    end = finished_event(record, record_object, jobs, pods)
    if end is not None:
        return summarise(record, apply(status, end))
    state, reason = _going_on(record_object, jobs, pods)
    return summarise(record, replace(status, state=state, reason=reason))


def _going_on(
    record_object: Object, jobs: Sequence[Object], pods: Sequence[Object]
) -> tuple[State, str | None]:
    stop = read_stop(record_object)
    if stop is not None:
        return "stopping", stop.reason
    ending = job_end(jobs)
    if ending is not None:
        return "stopping", ending.message or None
    if any(job["metadata"].get("deletionTimestamp") for job in jobs):
        return "stopping", "its Job is being deleted"
    if not jobs or any((job.get("spec") or {}).get("suspend") for job in jobs):
        told = _queued_reasons(record_object)
        return ("queued", told[-1]) if told else ("queued" if jobs else "recorded", None)
    workers = pods_by_worker(pods)
    wanted = sum(int((job.get("spec") or {}).get("completions") or 1) for job in jobs)
    up = [mine for mine in workers.values() if is_running(mine[-1]) or _is_done(mine[-1])]
    if len(up) == wanted:
        return "running", None
    lost = [(worker, how) for worker, mine in workers.items() if (how := _last_loss(mine))]
    if lost:
        worker, how = lost[0]
        return "restarting", f"worker {worker} was lost: {how}"
    return "starting", None


def _from_verdict(
    verdict: Mapping[str, Any], stop: Stop | None, pods: Sequence[Object], *, at: float
) -> Event:
    """The leader's own words; a failure that came with a stop is the stop's doing."""
    decided = verdict.get("at")
    first = stop is not None and isinstance(decided, int | float) and decided < stop.at
    if stop is not None and not first and verdict["outcome"] != "succeeded":
        return stopped(stop, at=at)
    try:
        cause = msgspec.convert(verdict.get("cause"), RootCause | None, strict=False)
    except msgspec.ValidationError:
        cause = None
    code = verdict.get("exit_code")
    return Event(
        kind="finished",
        at=at,
        outcome=verdict["outcome"],
        exit_code=code if isinstance(code, int) else 0 if verdict["outcome"] == "succeeded" else 1,
        reason=one_line(verdict.get("reason")) or None,
        cause=explain(cause, pods) if cause is not None else None,
    )


def stopped(stop: Stop, *, at: float) -> Event:
    """The end of a run that was told to, or given up."""
    if stop.outcome == "failed":  # whoever gave up on it said why
        return _lost("failed", stop.reason, at=at)
    return Event(kind="finished", at=at, outcome="stopped", exit_code=STOPPED_EXIT_CODE, reason=stop.reason)


def _without_verdict(end: JobEnd | None, pods: Sequence[Object], *, at: float) -> Event:
    """The end of a run whose leader said nothing: the first worker that was lost is why, if any is known."""
    limit = end.at if end is not None and end.at else at
    known = []
    for worker, mine in pods_by_worker(pods).items():
        for pod in mine:
            how, code = loss_of(pod), container_end(pod)
            if how is None:
                continue
            when = loss_time(pod) or limit
            # Who misses its leader, or is deleted because the Job has failed, only follows another.
            misses = code is not None and code.exit_code == NO_LEADER
            follows = misses + (
                when > limit or (bool(pod["metadata"].get("deletionTimestamp")) and not is_cut_off(pod))
            )
            known.append((follows, when, worker, how, misses))
    if known:
        _, _, worker, how, misses = min(known)
        if misses and (leaders := leader_pods(pods)):  # they know before Kubernetes does
            worker, how = 0, f"the others heard no more of it, on {node_name(leaders[-1])}"
        return _lost("failed", f"worker {worker} was lost: {how}", at=at, worker=worker)
    if any((code := container_end(pod)) and code.exit_code == RUN_OVER for pod in leader_pods(pods)):
        words = "worker 0 ended the run and left no verdict; its log has its last words"
        return _lost("failed", words, at=at, worker=0)
    said = f" (its Job says: {end.message or end.reason})" if end and (end.message or end.reason) else ""
    return _lost("lost", f"the run ended, and nobody is left to say how{said}", at=at)


def _lost(outcome: Outcome, summary: str, *, at: float, worker: int | None = None) -> Event:
    """An end that no rank's exit code tells of."""
    cause = RootCause(summary=summary, worker=worker, exit_code=LOST_EXIT_CODE)
    return Event(kind="finished", at=at, outcome=outcome, exit_code=LOST_EXIT_CODE, cause=cause)


def _last_loss(pods: Sequence[Object]) -> str | None:
    """How a worker that does not run was lost the last time, if it ever was."""
    if is_running(pods[-1]) or _is_done(pods[-1]):
        return None
    return next(filter(None, (loss_of(pod) for pod in reversed(pods))), None)


def _is_done(pod: Object) -> bool:
    end = container_end(pod)
    return end is not None and end.exit_code == 0


def _was_started(record_object: Object) -> bool:
    """Whether the run has had Jobs: its record belongs to them from then on."""
    return any(each["kind"] == "Job" for each in record_object["metadata"].get("ownerReferences") or [])


def _queued_reasons(record_object: Object) -> list[str]:
    text = (record_object.get("data") or {}).get(names.QUEUED_KEY) or "[]"
    told = json_object(f'{{"told": {text}}}').get("told")
    return [str(each["reason"]) for each in told or [] if isinstance(each, dict) and each.get("reason")]


def _to_job_end(
    outcome: Literal["complete", "failed"], condition: Mapping[str, Any], *, final: bool
) -> JobEnd:
    return JobEnd(
        outcome=outcome,
        reason=str(condition.get("reason") or ""),
        message=one_line(condition.get("message")),
        at=_changed(condition),
        final=final,
    )


def _changed(condition: Mapping[str, Any]) -> float:
    return moment(condition.get("lastTransitionTime")) or 0.0
