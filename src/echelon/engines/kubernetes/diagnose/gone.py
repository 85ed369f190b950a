"""How a pod was lost that is not there any more: what Events, or its successor, still tell. Pure.

Events are kept for an hour. A pod that the scheduler has preempted is gone as soon as its Job has counted it,
so that only who watched the run has seen how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.diagnose.cluster_events import read_event
from echelon.engines.kubernetes.fields import whole_number
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.workers import Loss

KEPT = 3600.0  # seconds for which a cluster keeps Events, unless it is told otherwise
_SLACK = 5.0  # seconds by which the clocks of nodes may differ
_HOW: Mapping[str, Callable[[str], Loss]] = {
    "Preempted": lambda _: Loss(kind="preempted", how="it was preempted by a pod of higher priority"),
    "TaintManagerEviction": lambda _: Loss(
        kind="tainted", how="it was sent away from its node (a NoExecute taint)"
    ),
    "Evicted": lambda why: Loss(kind="evicted", how=f"it was evicted from its node: {why}"),
}


def loss_of_gone(pods: Sequence[Pod], events: Sequence[shapes.Event], until: float) -> Loss | None:
    """How the last pod of a worker was lost that is not among its `pods`, the oldest of which comes first;
    it was lost before `until`.
    """
    if not pods:
        return None
    left, start = {each.metadata.uid for each in pods}, _start_of_names(pods[-1])
    told = []
    for event in events:
        target, how = event.involved_object, _HOW.get(event.reason)
        named = target.kind == "Pod" and target.name.startswith(start)
        if how is not None and named and target.uid not in left:
            known = read_event(event)
            if known.last <= until + _SLACK:
                told.append((known.last, how(known.message)))
    if told:
        return max(told, key=lambda each: each[0])[1]
    counts = pods[-1].metadata.annotations
    failed, taken = (
        whole_number(counts.get(name, "")) for name in (names.FAILURE_COUNT, names.EVICTION_COUNT)
    )
    if taken and not failed:
        return Loss(kind="node", how="its pod was taken away, as by a preemption, an eviction or a drain")
    return None


def _start_of_names(pod: Pod) -> str:
    """What the names of a worker's pods begin with: the Job controller adds something random."""
    name = pod.metadata.name
    stem = name.rpartition("-")[0] + "-"
    return stem if pod.metadata.generate_name == stem else name
