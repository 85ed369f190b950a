"""What an Indexed Job of workers is told: how many pods it makes, which it replaces, and when it fails.

The agents count restarts and decide; the Job heeds their exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echelon.agent.task import GAVE_WAY, INTERRUPTED, LEFT_FOR_GOOD, NO_LEADER, RANK_FAILED, RUN_OVER

if TYPE_CHECKING:
    from echelon.model.plan import Plan
    from echelon.model.run import Record

Object = dict[str, Any]


def indexed_spec(
    record: Record,
    plan: Plan,
    number: int,
    first_worker: int,
    container: str,
    *,
    suspend: bool | None = None,
) -> Object:
    """The spec of the Job of one group, but for its template. The agent is in the container of this name;
    `suspend` is None where another controller decides on it.
    """
    workers = plan.world.groups[number].workers
    rules = (_run_is_over(container), _has_failed(container), _is_taken_away(), _has_given_way(container))
    return {
        "completionMode": "Indexed",
        "completions": workers,
        "parallelism": workers,
        **({} if suspend is None else {"suspend": suspend}),
        # The agents count restarts; the Job only must not give up before they do.
        "backoffLimitPerIndex": record.job.restarts + 1,
        # The worker whose rank failed leaves before the leader, which holds on to its results.
        "maxFailedIndexes": 1 if first_worker == 0 and workers > 1 else 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": list(rules)},
    }


def _is_taken_away() -> Object:
    """A pod that the cluster evicted or preempted, or whose node was drained, counts as no failure."""
    condition = {"type": "DisruptionTarget", "status": "True"}
    return {"action": "Ignore", "onPodConditions": [condition]}


def _has_given_way(container: str) -> Object:
    """A worker of a gang that was not whole, and left its GPUs to other runs, counts as no failure either.
    One that was told to leave in any other way does not, as when its pod is deleted.
    """
    codes = {"containerName": container, "operator": "In", "values": [INTERRUPTED, GAVE_WAY]}
    return {"action": "Ignore", "onExitCodes": codes}


def _has_failed(container: str) -> Object:
    """The worker whose rank failed, or who was told to leave when no restart was left, is not replaced: its
    leader is about to end the run. Unlike `FailJob`, this does not heed the pods of a suspended Job.
    """
    codes = {"containerName": container, "operator": "In", "values": [RANK_FAILED, LEFT_FOR_GOOD]}
    return {"action": "FailIndex", "onExitCodes": codes}


def _run_is_over(container: str) -> Object:
    """Any other end of an agent is made good by another pod in its place."""
    codes = {"containerName": container, "operator": "In", "values": [RUN_OVER, NO_LEADER]}
    return {"action": "FailJob", "onExitCodes": codes}
