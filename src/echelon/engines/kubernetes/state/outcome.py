"""How a run in a cluster stands and ended, from its record, Jobs and pods alone: no log is read. Pure.

The objects are all there is when the leader is gone, and all that `ps` reads of most runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from echelon.agent.task import LEFT_FOR_GOOD, NO_LEADER, RUN_OVER
from echelon.engines.decoding import convert
from echelon.engines.kubernetes.fields import one_line
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stop, Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state.whole import is_half_made
from echelon.engines.kubernetes.state.workers import (
    agent_message,
    container_end,
    disruption_of,
    gave_way,
    has_ended,
    has_started,
    is_cut_off,
    is_done,
    is_running,
    last_loss,
    leader_pods,
    loss_of,
    loss_time,
    memory_limit,
    node_name,
    pods_by_worker,
    taken_away,
    was_replaced,
)
from echelon.engines.kubernetes.suspended import any_suspended, begins_anew, why_suspended
from echelon.model import ends
from echelon.model.event import Event, Outcome, RootCause
from echelon.model.state import State

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object

GONE = ("worker-left", "worker-lost")  # causes that are a worker's, not a rank's


def verdict_of(pods: Iterable[Pod]) -> Mapping[str, Any] | None:
    """The verdict in the leader's termination message; None without one that can be read. The first one is
    the run's: a leader that was killed while it kept results is replaced, and the new one fails, since no
    other worker comes any more. Only after a worker was told to leave do all begin anew.
    """
    found = []
    for pod in leader_pods(pods):
        end = container_end(pod)
        verdict = agent_message(end) if end else {}
        if verdict.get("outcome") in get_args(Outcome):
            found.append(verdict)
    return next((each for each in found if not _was_told_to_leave(each)), found[-1] if found else None)


def has_decided(pods: Sequence[Pod]) -> bool:
    """Whether a leader's termination message says how the run ended. One that replaced another and waited in
    vain for the other workers does not: the run may have been over before it came.
    """
    verdict = verdict_of(pods)
    cause = verdict.get("cause") if verdict is not None else None
    waited = isinstance(cause, dict) and cause.get("kind") == "worker-absent"
    return verdict is not None and not (waited and any(map(was_replaced, leader_pods(pods))))


def _was_told_to_leave(verdict: Mapping[str, Any]) -> bool:
    cause = verdict.get("cause")
    return isinstance(cause, dict) and cause.get("kind") in GONE


def finished_event(stored: Stored, jobs: Sequence[Object], pods: Sequence[Pod]) -> Event | None:
    """The end of a run, as far as its objects show; None while it goes on, or its leader is still leaving."""
    stop, verdict, end = stored.stop, verdict_of(pods), dialects.end_of(jobs)
    leaders = leader_pods(pods)
    left = container_end(leaders[-1]) if leaders else None
    orderly = left.at if left is not None and left.exit_code in (0, RUN_OVER, LEFT_FOR_GOOD) else 0.0
    at = orderly or (end.at if end is not None else left.at if left is not None else 0.0)
    if verdict is not None:
        told = _from_verdict(verdict, stop, pods, at=at)
        return None if waits_again(stored, jobs, told.cause) else told
    # A Job that was stopped before it began is complete without a pod.
    done = end is not None and end.outcome == "complete" and not any(map(_is_withdrawn, jobs))
    if (left is not None and left.exit_code == 0) or done:
        return ends.succeeded(at=at)
    alone = left_alone(pods)
    over = (left is not None and left.exit_code in (RUN_OVER, NO_LEADER, LEFT_FOR_GOOD)) or alone is not None
    at = at or alone or 0.0
    if end is not None and not end.final:
        # Its pods are being deleted. A leader may still report why, unless its node is gone with it.
        over = over or not leaders or has_ended(leaders[-1]) or is_cut_off(leaders[-1])
    elif end is not None:
        over = True
    if stop is not None and (over or not jobs):
        return stopped(stop, at=max(at, stop.at))
    if not jobs and not pods and stored.may_have_run:
        at = stored.deleted or stored.run.created
        return ends.run_lost("its Job was deleted, and the workers with it", at=at)
    if not over or (end is None and begins_anew(stored, jobs)):
        return None
    if end is not None and end.reason == "DeadlineExceeded":
        return ends.timed_out("its Job has a deadline, which has passed (activeDeadlineSeconds)", at=at)
    return _without_verdict(end, pods, at=at)


def left_alone(pods: Sequence[Pod]) -> float | None:
    """When the first worker left by which its Job fails, since it had lost its leader and no restart is left;
    None if there is none, or a leader is there that may still say more. The Job controller takes its time.
    """
    leaders = [pod for pod in leader_pods(pods) if has_started(pod)]
    if leaders and not has_ended(leaders[-1]) and not is_cut_off(leaders[-1]):
        return None
    # A worker that is deleted, as by a suspension, may leave so without the run being over.
    there = (pod for pod in pods if not pod.metadata.leaves)
    left = filter(None, map(container_end, there))
    return min((end.at for end in left if end.exit_code == NO_LEADER), default=None)


def waits_again(stored: Stored, jobs: Iterable[Object], cause: RootCause | None) -> bool:
    """Whether a run goes on though its leader has told its end: who suspends its Jobs, as Kueue does when it
    takes quota back, ends its workers so, and they begin anew when the Jobs go on.
    """
    return cause is not None and cause.kind in GONE and begins_anew(stored, jobs)


def _is_withdrawn(job: Object) -> bool:
    return dialects.of(job).is_withdrawn(job)


def explain(cause: RootCause, pods: Iterable[Pod]) -> RootCause:
    """The same cause with what only the cluster knows of it: how a worker was lost, which limit was hit."""
    mine = pods_by_worker(pods).get(cause.worker, []) if cause.worker is not None else []
    if cause.rank is None:
        loss = last_loss(mine)
        left = cause.kind == "worker-left"
        if loss is not None and loss.kind == "deleted" and not left:
            loss = None  # deleted after the run had ended: an agent whose pod is deleted reports it first
        if loss is None and left:  # a leader that decides this over itself
            loss = next(filter(None, map(taken_away, reversed(mine))), None)
        if loss is not None and cause.worker is not None:
            return ends.with_loss(cause, cause.worker, loss.how, disruption_of(loss))
        node = mine[-1].spec.node_name if mine else ""
        return replace(cause, summary=f"{cause.summary} (on node {node})") if node else cause
    for pod in reversed(mine):
        end, limit = container_end(pod), memory_limit(pod)
        if end is not None and end.reason == "OOMKilled" and limit and cause.signal == "SIGKILL":
            summary = f"rank {cause.rank} was killed by SIGKILL: out of memory, the limit is {limit}"
            return replace(cause, summary=summary)
    return cause


def going_on(stored: Stored, jobs: Sequence[Object], pods: Sequence[Pod]) -> tuple[State, str | None]:
    """The state of a run that is not over, as far as its objects show, and why it is that."""
    if stored.stop is not None:
        return "stopping", stored.stop.reason
    ending = dialects.end_of(jobs)
    if ending is not None:
        return "stopping", ending.message or None
    if any(job["metadata"].get("deletionTimestamp") for job in jobs):
        return "stopping", "its Job is being deleted"
    if jobs and is_half_made(stored, jobs):
        return "starting", None
    if any_suspended(jobs):
        return "queued", why_suspended(jobs)
    if not jobs:
        return ("queued", stored.queued[-1].reason) if stored.queued else ("recorded", None)
    workers = pods_by_worker(pods)
    up = [mine for mine in workers.values() if is_running(mine[-1]) or is_done(mine[-1])]
    if len(up) == dialects.wanted(jobs):
        return "running", None
    for worker, mine in workers.items():
        loss = None if is_running(mine[-1]) or is_done(mine[-1]) else last_loss(mine)
        if loss is not None:
            return "restarting", ends.loss_summary(worker, loss.how)
    return "starting", next(filter(None, (gave_way(mine[-1]) for mine in workers.values())), None)


def _from_verdict(verdict: Mapping[str, Any], stop: Stop | None, pods: Sequence[Pod], *, at: float) -> Event:
    """The end by the leader's verdict; a failure after a stop counts as the stop."""
    decided = verdict.get("at")
    first = stop is not None and isinstance(decided, int | float) and decided < stop.at
    what = verdict.get("missing")
    missing = tuple(map(one_line, what)) if isinstance(what, list) and what else None
    if stop is not None and not first and verdict["outcome"] != "succeeded":
        end = stopped_as_told(stop, verdict["outcome"], one_line(verdict.get("reason")), at=at)
        return replace(end, missing=missing)
    try:
        cause = convert(verdict.get("cause"), RootCause | None)
    except (msgspec.ValidationError, RecursionError):
        cause = None
    code = verdict.get("exit_code")
    known = isinstance(code, int) and 0 <= code <= 255
    return Event(
        kind="finished",
        at=at,
        outcome=verdict["outcome"],
        exit_code=code if known else 0 if verdict["outcome"] == "succeeded" else 1,
        reason=one_line(verdict.get("reason")) or None,
        missing=missing,
        cause=explain(cause, pods) if cause is not None else None,
    )


def stopped_as_told(stop: Stop, outcome: str | None, told: str | None, *, at: float) -> Event:
    """The end of a run that its leader has stopped as it was asked to. The leader's words have more than the
    request: which ranks had to be killed.
    """
    known = stop.outcome == outcome == "stopped" and told
    return stopped(replace(stop, reason=told) if known and told else stop, at=at)


def stopped(stop: Stop, *, at: float) -> Event:
    """The end of a run that was stopped, or given up."""
    if stop.outcome == "failed":
        return ends.failed(stop.reason, at=at, kind="given-up")
    if stop.outcome == "timed-out":
        return ends.timed_out(stop.reason, at=at)
    return ends.stopped(stop.reason, at=at)


def _without_verdict(end: dialects.End | None, pods: Sequence[Pod], *, at: float) -> Event:
    """The end of a run whose leader left no verdict: the first worker that was lost is why, if known."""
    limit = end.at if end is not None and end.at else at
    known = []
    for worker, mine in pods_by_worker(pods).items():
        for pod in mine:
            loss = loss_of(pod)
            if loss is None:
                continue
            when = loss_time(pod) or limit
            # A worker without its leader, or deleted because the Job has failed, only follows another.
            misses = loss.kind == "no-leader"
            follows = misses + (when > limit or (pod.metadata.leaves and not is_cut_off(pod)))
            known.append((follows, when, worker, loss.how, misses, disruption_of(loss)))
    if known:
        _, _, worker, how, misses, disruption = min(known, key=lambda each: each[:3])
        if misses:  # agents notice it before Kubernetes does
            leaders = leader_pods(pods)
            how = f"the others lost their connection to it, on {node_name(leaders[-1])}" if leaders else ""
            worker, how = 0, how or "the others waited for it in vain"
        return ends.worker_lost(worker, how, at=at, disruption=disruption)
    if any((code := container_end(pod)) and code.exit_code == RUN_OVER for pod in leader_pods(pods)):
        summary = "worker 0 ended the run and left no verdict; its log has its last lines"
        return ends.failed(summary, at=at, kind="worker-lost", worker=0)
    reported = f" (its Job says: {end.message or end.reason})" if end and (end.message or end.reason) else ""
    return ends.run_lost(f"the run ended, and nothing is left that says how{reported}", at=at)
