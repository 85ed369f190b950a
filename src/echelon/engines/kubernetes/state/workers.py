"""The state of a run's workers, from their pods: whether an agent runs, how it ended, how it was lost. Pure.

The border to what kubelets, schedulers and controllers write: here their reasons and, where there is no
reason, their messages become the kind of a loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from echelon.agent.task import GAVE_WAY, INTERRUPTED, LEFT_FOR_GOOD, NO_LEADER, RANK_FAILED, RUN_OVER
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import clock, condition_of, json_object, moment, one_line, whole_number
from echelon.engines.kubernetes.render import dialects
from echelon.model.event import Disruption
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object

LossKind = Literal[
    "oom",
    "start",  # its container could not start
    "preempted",
    "drained",
    "tainted",
    "volume-full",  # an emptyDir over its limit
    "disk-full",  # the node's disk, or its share of it
    "evicted",  # for any other lack on the node
    "node-lost",
    "node-left",  # its node ended it (SIGTERM)
    "node",  # its node ended it in another way
    "init",  # a container before ours failed
    "deleted",
    "no-leader",
    "agent",  # its agent ended by itself
]
_OOM = "OOMKilled"
# How container runtimes name a container whose command could not be started.
START_ERRORS = ("StartError", "ContainerCannotRun", "CreateContainerError", "RunContainerError")
_LAST_SIGNAL = 64  # exit codes of 128 + a signal end here; the agent's own are above


@frozen
class ContainerEnd:
    """How a worker's container ended; `message` is what it left in its termination log."""

    exit_code: int
    signal: str | None = None
    reason: str = ""
    message: str = ""
    at: float = 0.0


@frozen
class Loss:
    """How a worker's pod was lost; `how` follows "worker N was lost: "."""

    kind: LossKind
    how: str


# Losses of pods that were well: the cluster took them away.
_DISRUPTIONS: Mapping[LossKind, Disruption] = {
    "preempted": "preempted",
    "drained": "drained",
    "tainted": "tainted",
    "evicted": "evicted",
    "node-left": "node-shutdown",
}


_DELETED = Loss(kind="deleted", how="its pod was deleted")


def worker_of(pod: Object) -> int:
    """The number of the worker that a pod is, or was, an incarnation of."""
    env = worker_container(pod.get("spec") or {}).get("env") or []
    first = next((each.get("value") for each in env if each["name"] == names.ENV_FIRST_WORKER), None)
    first = first or (pod["metadata"].get("annotations") or {}).get(names.FIRST_WORKER)
    return (whole_number(first) or 0) + dialects.index_of(pod)


def pods_by_worker(pods: Iterable[Object]) -> dict[int, list[Object]]:
    """The pods of every worker that has any, in order of the workers; the oldest incarnation first."""
    found: dict[int, list[Object]] = {}
    for pod in sorted(pods, key=_age):
        found.setdefault(worker_of(pod), []).append(pod)
    return dict(sorted(found.items()))


def leader_pods(pods: Iterable[Object]) -> list[Object]:
    """The pods of worker 0, the oldest first."""
    return pods_by_worker(pods).get(0, [])


def has_started(pod: Object) -> bool:
    """Whether the worker's agent runs or has run, so that there may be a log."""
    end = container_end(pod)
    return "running" in container_state(pod) or (end is not None and end.reason not in START_ERRORS)


def is_running(pod: Object) -> bool:
    """Whether the worker's agent runs, as far as the cluster knows, and its pod is not being deleted."""
    return (
        "running" in container_state(pod)
        and not has_ended(pod)
        and not pod["metadata"].get("deletionTimestamp")
    )


def has_ended(pod: Object) -> bool:
    """Whether nothing runs in the pod any more, and nothing will."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed") or "terminated" in container_state(pod)


def is_done(pod: Object) -> bool:
    """Whether the agent left when its part was over, with a rank that had failed or without."""
    end = container_end(pod)
    return end is not None and end.exit_code in (0, RANK_FAILED)


def was_replaced(pod: Object) -> bool:
    """Whether a pod follows one that was lost: its gang was at work."""
    return _losses(pod) > 0


def gave_way(pod: Object) -> str | None:
    """Why the agent left its GPUs to other runs; None if it did not."""
    end = container_end(pod)
    return one_line(agent_message(end).get("reason")) if end and end.exit_code == GAVE_WAY else None


def container_end(pod: Object) -> ContainerEnd | None:
    """How the worker's container ended; None while it has not, or if it never came to be."""
    ended = container_state(pod).get("terminated")
    if ended is None:
        return None
    code = ended.get("exitCode", 0)
    number = ended.get("signal") or (code - 128 if 128 < code <= 128 + _LAST_SIGNAL else 0)
    reason = one_line(ended.get("reason"))
    from echelon.agent.ranks.report import signal_name  # not needed before a container has ended

    return ContainerEnd(
        exit_code=code,
        signal=signal_name(number) if number and reason not in START_ERRORS else None,
        reason=reason,
        message=str(ended.get("message") or ""),
        at=moment(ended.get("finishedAt")) or 0.0,
    )


def agent_message(end: ContainerEnd) -> Mapping[str, Any]:
    """What an agent of ours left as its termination message: JSON in the last line, after a sentence for
    people.
    """
    found: Mapping[str, Any] = json_object(end.message.rpartition("\n")[2])
    return found


def loss_of(pod: Object) -> Loss | None:
    """How a worker's pod was lost; None if it was not: it is there, or it ended as it should."""
    status = pod.get("status") or {}
    end = container_end(pod)
    if end is not None and end.exit_code in (0, RUN_OVER, RANK_FAILED, GAVE_WAY):
        return None
    if (loss := _evicted(pod)) is not None:
        return loss
    if is_cut_off(pod):
        return _node_lost(pod)
    if end is not None:
        return _of_container(pod, end)
    if (loss := failed_before(pod)) is not None:
        return loss
    if status.get("phase") == "Failed":
        why = one_line(status.get("message")) or status.get("reason") or "it gave no reason"
        return Loss(kind="node", how=f"{node_name(pod)} would not run it: {why}")
    return _DELETED if pod["metadata"].get("deletionTimestamp") else None


def disruption_of(loss: Loss | None) -> Disruption | None:
    """How the cluster took a pod away that was well; None if it was lost in another way."""
    return None if loss is None else _DISRUPTIONS.get(loss.kind)


def last_loss(pods: Sequence[Object]) -> Loss | None:
    """The newest loss among the incarnations of one worker, given the oldest first."""
    return next(filter(None, map(loss_of, reversed(pods))), None)


def taken_away(pod: Object) -> Loss | None:
    """How a pod was made to leave, however its agent ended; None if it was not."""
    return _evicted(pod) or (_DELETED if pod["metadata"].get("deletionTimestamp") else None)


def failed_before(pod: Object) -> Loss | None:
    """What went wrong in an init container: an admission webhook put it there, we make none."""
    for each in (pod.get("status") or {}).get("initContainerStatuses") or []:
        state = each.get("state") or {}
        ended = state.get("terminated") or (each.get("lastState") or {}).get("terminated") or {}
        if ended.get("exitCode") and "running" not in state:
            how = f"its init container {each['name']} exited with code {ended['exitCode']}"
            return Loss(kind="init", how=how)
    return None


def loss_time(pod: Object) -> float | None:
    """When a pod was lost, as far as its object shows."""
    end = container_end(pod)
    disruption = condition_of(pod, "DisruptionTarget") or {}
    return (
        (end.at if end else None)
        or moment(disruption.get("lastTransitionTime"))
        or moment(pod["metadata"].get("deletionTimestamp"))
        or moment((condition_of(pod, "Ready") or {}).get("lastTransitionTime"))
    )


def released(pods: Iterable[Object]) -> float | None:
    """When the last of a run's workers had left; None while one has not, or where that is not known."""
    ends = [container_end(pod) for pod in pods]
    if not ends or any(end is None for end in ends):
        return None
    return max((end.at for end in ends if end is not None), default=0.0) or None


def is_cut_off(pod: Object) -> bool:
    """Whether the cluster has marked a running pod as not ready because its node does not respond.

    The kubelet itself never does so to a pod whose containers are all ready."""
    ready, containers = condition_of(pod, "Ready"), condition_of(pod, "ContainersReady")
    return (
        "running" in container_state(pod)
        and (ready or {}).get("status") == "False"
        and (containers or {}).get("status") == "True"
    )


def has_leader(pods: Iterable[Object]) -> bool:
    """Whether worker 0's agent runs, as far as the cluster knows."""
    return any(is_running(pod) and not is_cut_off(pod) for pod in leader_pods(pods))


def is_stuck(pod: Object, now: float) -> bool:
    """Whether a pod was deleted, had its time to leave, and stays because its node does not respond:
    Kubernetes replaces it only once its phase is Failed.
    """
    due = moment(pod["metadata"].get("deletionTimestamp"))
    return due is not None and now >= due and is_cut_off(pod)


def worker_container(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container of the agent in a pod's spec: of a job of Kubeflow's it has that kind's name, and is the
    one that is told its worker's number.
    """
    containers: list[Mapping[str, Any]] = spec.get("containers") or [{}]
    named = [each for each in containers if each.get("name") == names.CONTAINER]
    told = (
        each
        for each in containers
        if any(one.get("name") == names.ENV_FIRST_WORKER for one in each.get("env") or ())
    )
    return named[0] if named else next(told, containers[0])


def container_name(pod: Object) -> str:
    """The name of the agent's container."""
    return str(worker_container(pod.get("spec") or {}).get("name") or names.CONTAINER)


def container_state(pod: Object) -> Mapping[str, Any]:
    """The state of the agent's container: one of `waiting`, `running`, `terminated`, with what is in it."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    name = container_name(pod)
    mine = next((each for each in statuses if each.get("name") == name), None)
    found: Mapping[str, Any] = ((mine or (statuses[0] if statuses else {})).get("state")) or {}
    return found


def memory_limit(pod: Object) -> str | None:
    """The memory limit of the agent's container, as it was written."""
    spec = pod.get("spec") or {}
    for each in (worker_container(spec), spec):
        limit = ((each.get("resources") or {}).get("limits") or {}).get("memory")
        if limit:
            return str(limit)
    return None


def node_name(pod: Object) -> str:
    """The pod's node, for a sentence."""
    name = (pod.get("spec") or {}).get("nodeName")
    return f"its node {name}" if name else "its node"


def start_error(message: str) -> str:
    """The end of a container runtime's long message about a command that it could not start: why."""
    reason = one_line(message)
    for mark in ("error during container init: ", "unable to start container process: ", "desc = "):
        reason = reason.rpartition(mark)[2]
    return reason.removesuffix(": unknown")


def _evicted(pod: Object) -> Loss | None:
    status, disruption = pod.get("status") or {}, condition_of(pod, "DisruptionTarget")
    if status.get("reason") == "Evicted":
        why = one_line(status.get("message"))
        kind: LossKind = "evicted"
        if "EmptyDir volume" in why:  # the kubelet has one reason for all evictions
            kind = "volume-full"
        elif "ephemeral" in why:
            kind = "disk-full"
        return Loss(kind=kind, how=f"it was evicted from {node_name(pod)}: {why}")
    if disruption and disruption.get("status") == "True":
        return _disruption(pod, disruption)
    return None


def _node_lost(pod: Object) -> Loss:
    since = (condition_of(pod, "Ready") or {}).get("lastTransitionTime")
    return Loss(kind="node-lost", how=f"{node_name(pod)} was lost (no response since {clock(since)})")


def _disruption(pod: Object, disruption: Mapping[str, Any]) -> Loss:
    node, why = node_name(pod), one_line(disruption.get("message"))
    match disruption.get("reason"):
        case "PreemptionByScheduler":
            return Loss(kind="preempted", how=f"it was preempted on {node} by a pod of higher priority")
        case "EvictionByEvictionAPI":
            return Loss(kind="drained", how=f"it was evicted from {node}, as when the node is drained")
        case "DeletionByTaintManager" if is_cut_off(pod):
            return _node_lost(pod)
        case "DeletionByTaintManager":
            return Loss(kind="tainted", how=f"it was sent away from {node} (a NoExecute taint)")
        case "DeletionByPodGC":
            return Loss(kind="node-lost", how=f"{node} was removed from the cluster")
        case "TerminationByKubelet":
            message = one_line((pod.get("status") or {}).get("message")) or why
            return Loss(kind="node", how=f"{node} ended it: {message}")
        case reason:
            return Loss(kind="node", how=f"it was taken off {node}: {why or reason}")


def _of_container(pod: Object, end: ContainerEnd) -> Loss:
    if end.reason == _OOM:
        limit = memory_limit(pod)
        room = f"the limit is {limit}" if limit else "its node has no more"
        return Loss(kind="oom", how=f"it ran out of memory: {room}")
    if end.reason in START_ERRORS:
        return Loss(kind="start", how=f"its container could not start: {start_error(end.message)}")
    if end.reason == "ContainerStatusUnknown":
        return Loss(kind="node", how=f"{node_name(pod)} was restarted under it")
    if end.exit_code in (INTERRUPTED, LEFT_FOR_GOOD):
        if pod["metadata"].get("deletionTimestamp"):
            return _DELETED
        return Loss(kind="node-left", how=f"{node_name(pod)} told it to leave (SIGTERM)")
    if end.exit_code == NO_LEADER:
        return Loss(kind="no-leader", how="it waited in vain for worker 0")
    how = f"was killed by {end.signal}" if end.signal else f"exited with code {end.exit_code}"
    why = one_line(agent_message(end).get("reason"))
    return Loss(kind="agent", how=f"its agent {how}" + (f": {why}" if why else ""))


def _age(pod: Object) -> tuple[str, int, str]:
    about = pod["metadata"]
    return about.get("creationTimestamp") or "", _losses(pod), about["name"]


def _losses(pod: Object) -> int:
    """How many pods of a worker were lost before this one, as its Job counts."""
    notes = pod["metadata"].get("annotations") or {}
    counted = (notes.get(name) for name in (names.FAILURE_COUNT, names.EVICTION_COUNT))
    return sum(whole_number(str(each or "")) or 0 for each in counted)
