"""Why a run in a cluster does not run: every trouble that its objects show, the most telling first. Pure.

The parts, in the order of a pod's life: `creation` (no pod can be made), `claims`, `scheduling` (it finds no
node), `starting` and `pulling` (its container does not start), `gone` (it was lost)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.diagnose.claims import claim_trouble, claims_of, is_tied
from echelon.engines.kubernetes.diagnose.cluster_events import ClusterEvent, Events, last_of
from echelon.engines.kubernetes.diagnose.creation import missing_pods
from echelon.engines.kubernetes.diagnose.scheduling import (
    Unfit,
    explain_unfit,
    lacks_room,
    missing_claim,
    read_scheduler,
)
from echelon.engines.kubernetes.diagnose.starting import start_trouble, untold_trouble, waiting_trouble
from echelon.engines.kubernetes.diagnose.trouble import (
    PATIENCE,
    Finding,
    Kind,
    Trouble,
    gives_up,
    limit_note,
    report,
)
from echelon.engines.kubernetes.fields import moment, one_line, whole_number
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state.workers import (
    START_ERRORS,
    Loss,
    LossKind,
    container_end,
    has_ended,
    is_running,
    loss_of,
    loss_time,
    pods_by_worker,
)
from echelon.model.engine.cluster import Cluster

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object

__all__ = ["PATIENCE", "Trouble", "diagnose", "gives_up", "limit_note"]

_UNTOLD = shapes.DatedCondition(type="PodScheduled")
_SCHEDULER_SILENCE = 10.0  # seconds within which a scheduler has looked at a new pod
_SCHEDULER_FAILED = "SchedulerError"  # the reason in a condition of a try that was no verdict on the nodes
_CONFLICT = 30.0  # seconds for which such tries are no news
_SCALING = ("TriggeredScaleUp", "Nominated")  # reasons in events of the cluster autoscaler, and of Karpenter
_NOT_SCALING = ("NotTriggerScaleUp", "FailedScaleUp")
_RESTARTS = "with --restarts the run goes on on another node"
# Losses after which a run that has restarts left goes on by itself.
_ELSEWHERE: tuple[LossKind, ...] = ("preempted", "drained", "tainted", "node-lost", "node-left")
# For each kind of loss: the kind of trouble that it is, and what helps.
_LOSSES: dict[LossKind, tuple[Kind, str]] = {
    "oom": ("oom", "give the workers more with --memory, or load less at a time"),
    "preempted": ("preempted", "a higher --priority-class is not preempted"),
    "drained": ("evicted", ""),
    "tainted": ("evicted", ""),
    "volume-full": ("evicted", "write less there, or give it more: --shm, --mount emptydir:SIZE:/path"),
    "disk-full": (
        "evicted",
        "write less to the node's disk: results and data can go to a volume (--output)",
    ),
    "evicted": (
        "evicted",
        "ask for as much as the workers use (--memory), so that others are evicted first",
    ),
    "node-lost": ("node-lost", ""),
    "node-left": ("node-lost", ""),
    "init": ("lost", "the cluster's administrators know what it is for"),
}
_OTHER_LOSS: tuple[Kind, str] = ("lost", "`echelon logs` has its last lines")


def diagnose(
    *,
    jobs: Sequence[Object],
    pods: Sequence[Pod],
    now: float,
    events: Sequence[shapes.Event] | None = (),
    nodes: Sequence[shapes.Node] | None = None,
    claims: Sequence[shapes.Claim] | None = None,
    cluster: Cluster | None = None,
    alone: str | None = None,
    restarts: bool = False,
) -> list[Trouble]:
    """Every trouble of a run's workers, the most telling first; none if all is well or it is queued.

    `events` are those of the namespace, or of its Jobs, pods and claims; `events`, `nodes` and `claims` are
    None where they may not be listed; `cluster` has what is free on each node; `alone` is the name of a
    single pod that is no worker of a run; with `restarts` the run has some, and needs no advice about it."""
    indexed = Events(events)
    look = _Look(events=indexed, nodes=nodes, claims=claims, cluster=cluster, now=now, alone=alone)
    findings: list[Finding] = []
    workers = pods_by_worker(pods)
    for job in jobs:
        dialect = dialects.of(job)
        if dialect.is_suspended(job) or dialect.end_of([job]) is not None:
            continue
        first = whole_number((job["metadata"].get("annotations") or {}).get(names.FIRST_WORKER)) or 0
        own = range(first, first + dialect.wanted(job))
        mine = [pod for worker in own for pod in workers.get(worker, [])]
        missing = [worker for worker in own if worker not in workers]
        findings += missing_pods(job, mine, missing, indexed, now)
        for worker in own:
            if worker in workers:
                findings += look.at_worker(worker, workers[worker], restarts=restarts)
    return report(findings, alone)


class _Look:
    """What is at hand to judge a pod by."""

    def __init__(
        self,
        *,
        events: Events,
        nodes: Sequence[shapes.Node] | None,
        claims: Sequence[shapes.Claim] | None,
        cluster: Cluster | None,
        now: float,
        alone: str | None,
    ) -> None:
        self._alone = alone
        self._events = events
        self._nodes = nodes
        self._claims = None if claims is None else {each.metadata.name: each for each in claims}
        self._cluster = cluster
        self._now = now

    def at_worker(self, worker: int, pods: Sequence[Pod], *, restarts: bool) -> Iterator[Finding]:
        """The troubles of one worker, whose incarnations are given, the oldest first."""
        pod = pods[-1]
        events = self._events.of("Pod", pod.metadata.name, pod.metadata.uid)
        loss = loss_of(pod)
        if loss is not None:
            yield self._lost(worker, pods, loss, restarts=restarts)
        elif has_ended(pod) or is_running(pod):
            return
        elif not pod.spec.node_name:
            yield from self._unscheduled(worker, pod, events)
        else:
            finding = waiting_trouble(pod, events, self._now)
            if finding is None and not self._events.known:
                finding = untold_trouble(pod, self._now)
            if finding is not None:
                yield finding

    def _lost(self, worker: int, pods: Sequence[Pod], loss: Loss, *, restarts: bool) -> Finding:
        pod, end = pods[-1], container_end(pods[-1])
        if end is not None and end.reason in START_ERRORS:
            return start_trouble(pod, end.message, end.at or None)
        failures = sum(loss_of(each) is not None for each in pods)
        kind, hint = _LOSSES.get(loss.kind, _OTHER_LOSS)
        if loss.kind in _ELSEWHERE and not restarts:
            hint = "; ".join(filter(None, (hint, _RESTARTS)))
        # Each worker by itself: "workers 1, 2 was lost" is no sentence, and their reasons may differ later.
        who, times = self._alone or f"worker {worker}", ""
        if failures > 1:
            kind = "crash-loop" if kind == "lost" else kind
            times = f" for the {_ordinal(failures)} time"
        text = f"{who} was lost{times}: {loss.how}"
        return Finding(kind=kind, text=text, workers=(worker,), hint=hint, since=loss_time(pod))

    def _unscheduled(self, worker: int, pod: Pod, events: Sequence[ClusterEvent]) -> Iterator[Finding]:
        told = pod.status.condition("PodScheduled") or _UNTOLD
        since = moment(told.last_transition_time)
        begun = moment(pod.metadata.creation_timestamp)
        if told.reason == "SchedulingGated":
            gates = ", ".join(each.name for each in pod.spec.scheduling_gates)
            yield Finding(
                kind="unschedulable",
                text=f"{{who}} cannot start before the scheduling gate is removed: {gates}",
                workers=(worker,),
                hint="a queueing system of the cluster (Kueue?) decides that",
                since=since,
            )
            return
        if told.reason == _SCHEDULER_FAILED and self._now - (since or self._now) < _CONFLICT:
            return  # another scheduler, or an older look at the pod, was in the way: it tries again
        message = one_line(told.message)
        if not message and told.status != "True":
            if begun is not None and self._now - begun >= _SCHEDULER_SILENCE:
                # A scheduler that has found a node reports nothing until the pod's claims are bound.
                if stuck := self._claim_troubles(worker, pod, begun):
                    yield from stuck
                    return
                yield Finding(
                    kind="silent",
                    text="no scheduler has looked at {pod} yet",
                    workers=(worker,),
                    hint="if that goes on, the cluster's scheduler is not at work: `echelon doctor --on k8s`",
                    since=begun,
                )
            return
        unfit = read_scheduler(message)
        found = self._claim_troubles(worker, pod, since, missing_claim(unfit))
        if found:
            yield from found
            return
        yield self._no_node(worker, pod, unfit, events, since)

    def _claim_troubles(
        self, worker: int, pod: Pod, since: float | None, missing: str | None = None
    ) -> list[Finding]:
        """What is wrong with the pod's claims; where they cannot be seen, with the one reported missing."""
        known = self._claims or {}
        named = claims_of(pod.spec) if self._claims is not None else [missing] if missing else []
        looked = (claim_trouble(name, known.get(name), self._events, worker, since) for name in named)
        return [each for each in looked if each is not None]

    def _no_node(
        self, worker: int, pod: Pod, unfit: Unfit, events: Sequence[ClusterEvent], since: float | None
    ) -> Finding:
        claims = self._claims or {}
        tied = [name for name in claims_of(pod.spec) if is_tied(claims.get(name))]
        why, hint = explain_unfit(unfit, pod, self._nodes, self._cluster, tied)
        verb = "has room for" if lacks_room(unfit) else "will take"
        text = f"no node {verb} {{who}}: {why}"
        nominated = pod.status.nominated_node_name
        scaling = last_of(events, *_SCALING, *_NOT_SCALING)
        kind: Kind = "unschedulable"
        if nominated:
            text = f"room is being made for {{who}} on node {nominated}: pods of lower priority are leaving"
            hint = "it starts there when they have gone"
        elif scaling is not None and scaling.reason in _SCALING:
            kind = "scaling"
            text = f"the cluster is adding a node for {{who}} ({_scaling_message(scaling)}): {why}"
            hint = "that takes some minutes"
        elif scaling is not None:
            text += f"; the cluster's autoscaler adds none ({_scaling_message(scaling)})"
        return Finding(kind=kind, text=text, workers=(worker,), hint=hint, since=since)


def _scaling_message(scaling: ClusterEvent) -> str:
    message = scaling.message
    for lead in ("pod triggered scale-up: ", "pod didn't trigger scale-up: ", "Pod should schedule on: "):
        message = message.removeprefix(lead)
    return message.strip("[{}]")


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
