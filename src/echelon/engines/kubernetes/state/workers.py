"""The state of a run's workers, from their pods: whether an agent runs, how it ended, how it was lost. Pure.

The border to what kubelets, schedulers and controllers write: here their reasons and, where there is no
reason, their messages become the kind of a loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

from echelon.agent.task import GAVE_WAY, INTERRUPTED, LEFT_FOR_GOOD, NO_LEADER, RANK_FAILED, RUN_OVER
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import clock, json_object, moment, one_line, whole_number
from echelon.engines.kubernetes.pods import Container, ContainerState, Pod, Spec
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.shapes import ToldCondition
from echelon.model.event import Disruption
from echelon.values import frozen

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
_NO_CONTAINER, _NO_STATE = Container(), ContainerState()


def worker_of(pod: Pod) -> int:
    """The number of the worker that a pod is, or was, an incarnation of."""
    env = worker_container(pod.spec).env
    first = next((each.value for each in env if each.name == names.ENV_FIRST_WORKER), "")
    first = first or pod.metadata.annotations.get(names.FIRST_WORKER, "")
    return (whole_number(first) or 0) + dialects.index_of(pod.metadata)


def pods_by_worker(pods: Iterable[Pod]) -> dict[int, list[Pod]]:
    """The pods of every worker that has any, in order of the workers; the oldest incarnation first."""
    found: dict[int, list[Pod]] = {}
    for pod in sorted(pods, key=_age):
        found.setdefault(worker_of(pod), []).append(pod)
    return dict(sorted(found.items()))


def leader_pods(pods: Iterable[Pod]) -> list[Pod]:
    """The pods of worker 0, the oldest first."""
    return pods_by_worker(pods).get(0, [])


def has_started(pod: Pod) -> bool:
    """Whether the worker's agent runs or has run, so that there may be a log."""
    end = container_end(pod)
    running = container_state(pod).running is not None
    return running or (end is not None and end.reason not in START_ERRORS)


def is_running(pod: Pod) -> bool:
    """Whether the worker's agent runs, as far as the cluster knows, and its pod is not being deleted."""
    return container_state(pod).running is not None and not has_ended(pod) and not pod.metadata.leaves


def has_ended(pod: Pod) -> bool:
    """Whether nothing runs in the pod any more, and nothing will."""
    return pod.status.phase in ("Succeeded", "Failed") or container_state(pod).terminated is not None


def is_done(pod: Pod) -> bool:
    """Whether the agent left when its part was over, with a rank that had failed or without."""
    end = container_end(pod)
    return end is not None and end.exit_code in (0, RANK_FAILED)


def was_replaced(pod: Pod) -> bool:
    """Whether a pod follows one that was lost: its gang was at work."""
    return _losses(pod) > 0


def gave_way(pod: Pod) -> str | None:
    """Why the agent left its GPUs to other runs; None if it did not."""
    end = container_end(pod)
    return one_line(agent_message(end).get("reason")) if end and end.exit_code == GAVE_WAY else None


def container_end(pod: Pod) -> ContainerEnd | None:
    """How the worker's container ended; None while it has not, or if it never came to be."""
    ended = container_state(pod).terminated
    if ended is None:
        return None
    code = ended.exit_code
    number = ended.signal or (code - 128 if 128 < code <= 128 + _LAST_SIGNAL else 0)
    reason = one_line(ended.reason)
    from echelon.agent.ranks.report import signal_name  # not needed before a container has ended

    return ContainerEnd(
        exit_code=code,
        signal=signal_name(number) if number and reason not in START_ERRORS else None,
        reason=reason,
        message=ended.message,
        at=moment(ended.finished_at) or 0.0,
    )


def agent_message(end: ContainerEnd) -> Mapping[str, Any]:
    """What an agent of ours left as its termination message: JSON in the last line, after a sentence for
    people.
    """
    found: Mapping[str, Any] = json_object(end.message.rpartition("\n")[2])
    return found


def loss_of(pod: Pod) -> Loss | None:
    """How a worker's pod was lost; None if it was not: it is there, or it ended as it should."""
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
    if pod.status.phase == "Failed":
        why = one_line(pod.status.message) or pod.status.reason or "it gave no reason"
        return Loss(kind="node", how=f"{node_name(pod)} would not run it: {why}")
    return _DELETED if pod.metadata.leaves else None


def disruption_of(loss: Loss | None) -> Disruption | None:
    """How the cluster took a pod away that was well; None if it was lost in another way."""
    return None if loss is None else _DISRUPTIONS.get(loss.kind)


def last_loss(pods: Sequence[Pod]) -> Loss | None:
    """The newest loss among the incarnations of one worker, given the oldest first."""
    return next(filter(None, map(loss_of, reversed(pods))), None)


def taken_away(pod: Pod) -> Loss | None:
    """How a pod was made to leave, however its agent ended; None if it was not."""
    return _evicted(pod) or (_DELETED if pod.metadata.leaves else None)


def failed_before(pod: Pod) -> Loss | None:
    """What went wrong in an init container: an admission webhook put it there, we make none."""
    for each in pod.status.init_container_statuses:
        ended = each.state.terminated or each.last_state.terminated
        if ended is not None and ended.exit_code and each.state.running is None:
            how = f"its init container {each.name} exited with code {ended.exit_code}"
            return Loss(kind="init", how=how)
    return None


def loss_time(pod: Pod) -> float | None:
    """When a pod was lost, as far as its object shows."""
    end = container_end(pod)
    return (
        (end.at if end else None)
        or _since(pod, "DisruptionTarget")
        or moment(pod.metadata.deletion_timestamp)
        or _since(pod, "Ready")
    )


def released(pods: Iterable[Pod]) -> float | None:
    """When the last of a run's workers had left; None while one has not, or where that is not known."""
    ends = [container_end(pod) for pod in pods]
    if not ends or any(end is None for end in ends):
        return None
    return max((end.at for end in ends if end is not None), default=0.0) or None


def is_cut_off(pod: Pod) -> bool:
    """Whether the cluster has marked a running pod as not ready because its node does not respond.

    The kubelet itself never does so to a pod whose containers are all ready."""
    ready, containers = pod.status.condition("Ready"), pod.status.condition("ContainersReady")
    return (
        container_state(pod).running is not None
        and (ready is not None and ready.status == "False")
        and (containers is not None and containers.status == "True")
    )


def has_leader(pods: Iterable[Pod]) -> bool:
    """Whether worker 0's agent runs, as far as the cluster knows."""
    return any(is_running(pod) and not is_cut_off(pod) for pod in leader_pods(pods))


def is_stuck(pod: Pod, now: float) -> bool:
    """Whether a pod was deleted, had its time to leave, and stays because its node does not respond:
    Kubernetes replaces it only once its phase is Failed.
    """
    due = moment(pod.metadata.deletion_timestamp)
    return due is not None and now >= due and is_cut_off(pod)


def worker_container(spec: Spec) -> Container:
    """The container of the agent in a pod's spec: of a job of Kubeflow's it has that kind's name, and is the
    one that is told its worker's number.
    """
    named = (each for each in spec.containers if each.name == names.CONTAINER)
    told = (each for each in spec.containers if any(one.name == names.ENV_FIRST_WORKER for one in each.env))
    return next(chain(named, told, spec.containers), _NO_CONTAINER)


def container_name(pod: Pod) -> str:
    """The name of the agent's container."""
    return worker_container(pod.spec).name or names.CONTAINER


def container_state(pod: Pod) -> ContainerState:
    """The state of the agent's container."""
    statuses, name = pod.status.container_statuses, container_name(pod)
    mine = (each for each in statuses if each.name == name)
    return next((each.state for each in chain(mine, statuses)), _NO_STATE)


def memory_limit(pod: Pod) -> str | None:
    """The memory limit of the agent's container, as it was written."""
    for each in (worker_container(pod.spec).resources, pod.spec.resources):
        limit = (each.limits or {}).get("memory")
        if limit:
            return str(limit)
    return None


def node_name(pod: Pod) -> str:
    """The pod's node, for a sentence."""
    return f"its node {pod.spec.node_name}" if pod.spec.node_name else "its node"


def start_error(message: str) -> str:
    """The end of a container runtime's long message about a command that it could not start: why."""
    reason = one_line(message)
    for mark in ("error during container init: ", "unable to start container process: ", "desc = "):
        reason = reason.rpartition(mark)[2]
    return reason.removesuffix(": unknown")


def _since(pod: Pod, condition: str) -> float | None:
    found = pod.status.condition(condition)
    return moment(found.last_transition_time) if found is not None else None


def _evicted(pod: Pod) -> Loss | None:
    status, disruption = pod.status, pod.status.condition("DisruptionTarget")
    if status.reason == "Evicted":
        why = one_line(status.message)
        kind: LossKind = "evicted"
        if "EmptyDir volume" in why:  # the kubelet has one reason for all evictions
            kind = "volume-full"
        elif "ephemeral" in why:
            kind = "disk-full"
        return Loss(kind=kind, how=f"it was evicted from {node_name(pod)}: {why}")
    if disruption is not None and disruption.status == "True":
        return _disruption(pod, disruption)
    return None


def _node_lost(pod: Pod) -> Loss:
    ready = pod.status.condition("Ready")
    since = clock(ready.last_transition_time if ready is not None else None)
    return Loss(kind="node-lost", how=f"{node_name(pod)} was lost (no response since {since})")


def _disruption(pod: Pod, disruption: ToldCondition) -> Loss:
    node, why = node_name(pod), one_line(disruption.message)
    match disruption.reason:
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
            message = one_line(pod.status.message) or why
            return Loss(kind="node", how=f"{node} ended it: {message}")
        case reason:
            return Loss(kind="node", how=f"it was taken off {node}: {why or reason}")


def _of_container(pod: Pod, end: ContainerEnd) -> Loss:
    if end.reason == _OOM:
        limit = memory_limit(pod)
        room = f"the limit is {limit}" if limit else "its node has no more"
        return Loss(kind="oom", how=f"it ran out of memory: {room}")
    if end.reason in START_ERRORS:
        return Loss(kind="start", how=f"its container could not start: {start_error(end.message)}")
    if end.reason == "ContainerStatusUnknown":
        return Loss(kind="node", how=f"{node_name(pod)} was restarted under it")
    if end.exit_code in (INTERRUPTED, LEFT_FOR_GOOD):
        if pod.metadata.leaves:
            return _DELETED
        return Loss(kind="node-left", how=f"{node_name(pod)} told it to leave (SIGTERM)")
    if end.exit_code == NO_LEADER:
        return Loss(kind="no-leader", how="it waited in vain for worker 0")
    how = f"was killed by {end.signal}" if end.signal else f"exited with code {end.exit_code}"
    why = one_line(agent_message(end).get("reason"))
    return Loss(kind="agent", how=f"its agent {how}" + (f": {why}" if why else ""))


def _age(pod: Pod) -> tuple[str, int, str]:
    return pod.metadata.creation_timestamp or "", _losses(pod), pod.metadata.name


def _losses(pod: Pod) -> int:
    """How many pods of a worker were lost before this one, as its Job counts."""
    notes = pod.metadata.annotations
    counted = (notes.get(name, "") for name in (names.FAILURE_COUNT, names.EVICTION_COUNT))
    return sum(whole_number(each) or 0 for each in counted)
