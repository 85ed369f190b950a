"""Nodes, pods, and places kept for workers, as the Cluster that placement reads: what is taken.

`look` asks the API server and needs the right to list nodes and the pods of all namespaces; without it the
scheduler alone places a run, and all else works. `to_cluster` is pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.nodes.gpus import gpu_resource, gpus_of, is_gpu
from echelon.engines.kubernetes.nodes.holder_names import holder_of, run_name
from echelon.engines.kubernetes.nodes.requests import Sums, pod_requests
from echelon.engines.kubernetes.quantities import amount_of
from echelon.engines.kubernetes.render import dialects
from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster, LeftOut, Node
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api

T = TypeVar("T")
Toleration = Mapping[str, Any]
# Every worker with GPUs tolerates the taints by which clusters keep other pods away from their GPUs.
GPU_TOLERATIONS: tuple[Toleration, ...] = tuple({"key": key, "operator": "Exists"} for key in names.GPUS)
ENDED = ("Succeeded", "Failed")  # phases of pods that hold nothing any more
# Taints that come and go with a node's health or lifecycle; an administrator sets all others.
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeleted", "karpenter.sh/disrupt")
TRIED_WITHIN = 60.0  # seconds; a tender tries to admit its queued run at least every 15
_NAMED = 8  # values of a label that a hint names


@frozen
class Seen:
    """The objects that the user may list; `nodes` is None, and `all_namespaces` False, where they may not."""

    nodes: list[shapes.Node] | None
    pods: list[shapes.Occupant]
    places: list[dialects.Place]
    waiting: list[dialects.InQueue] = field(default_factory=list)  # runs whose objects wait
    in_kueue: list[dialects.InKueue] = field(default_factory=list)  # runs whose objects wait for Kueue
    all_namespaces: bool = True  # the pods of all namespaces, or of ours only


@dataclass(slots=True)
class _Use:
    """What is taken of one node, and the holders of its GPUs."""

    taken: Sums = field(default_factory=dict)
    pods: int = 0
    holders: dict[str, Sums] = field(default_factory=dict)

    def add(self, asked: Sums, holder: str) -> None:
        self.pods += 1
        for name, amount in asked.items():
            self.taken[name] = self.taken.get(name, 0) + amount
            if is_gpu(name) and amount:
                held = self.holders.setdefault(name, {})
                held[holder] = held.get(holder, 0) + amount


def look(
    api: Api,
    *,
    gpus: bool = True,
    gpu_type: str | None = None,
    selector: str = "",
    tolerations: Sequence[Toleration] = (),
    seen: Seen | None = None,
) -> Cluster:
    """The cluster as it is now for workers with these tolerations, on nodes that `selector` selects; with the
    GPUs of the one resource that `--gpus` or this type of GPU means. `seen` is what was just seen of it.
    """
    if seen is None:
        seen = see(api, selector=selector)
    if seen.nodes is None or not seen.all_namespaces:
        waiting = queued_runs(seen.waiting, api.namespace)
        return Cluster(nodes=(), waiting=waiting, known=False, here=False)
    return to_cluster(
        seen.nodes,
        seen.pods,
        seen.places,
        seen.waiting,
        me=api.namespace,
        gpu_type=gpu_type,
        tolerations=(*tolerations, *(GPU_TOLERATIONS if gpus else ())),
    )


def see(api: Api, *, selector: str = "") -> Seen:
    """List the objects that show what is used, as far as the user's rights go."""
    from echelon.engines.kubernetes.client.api import ALL
    from echelon.engines.kubernetes.client.beside import beside
    from echelon.errors import Denied

    ours = f"{names.MANAGED_BY}=echelon,{names.COMPONENT}={names.WORKER}"
    # The API server filters out ended and unscheduled pods: a cluster's history may be long.
    bound = ",".join(["spec.nodeName!=", *(f"status.phase!={phase}" for phase in ENDED)])

    def listed(kind: str, shape: type[T], **which: str) -> list[T] | None:
        try:
            return list(api.list_shapes(kind, shape, **which))
        except Denied:
            return None

    def bound_pods() -> tuple[list[shapes.Occupant], bool]:
        pods = listed("Pod", shapes.Occupant, fields=bound, namespace=ALL)
        if pods is not None:
            return pods, True
        return listed("Pod", shapes.Occupant, fields=bound) or [], False

    nodes = beside(lambda: listed("Node", shapes.Node, selector=selector))
    pods, all_namespaces = bound_pods()
    places: list[dialects.Place] = []
    waiting: list[dialects.InQueue] = []
    in_kueue: list[dialects.InKueue] = []
    for dialect in (each for each in dialects.DIALECTS.values() if each.KEEPS_PLACES):
        for kind in dialect.KINDS:
            found = listed(kind, dialect.Shape, selector=ours, namespace=ALL)
            if found is None:
                found = listed(kind, dialect.Shape, selector=ours)
            places += [place for obj in found or () for place in dialect.places(obj)]
            waiting += filter(None, (dialect.in_queue(obj) for obj in found or ()))
            in_kueue += filter(None, (dialect.in_kueue(obj) for obj in found or ()))
    return Seen(
        nodes=nodes(),
        pods=pods,
        places=places,
        waiting=waiting,
        in_kueue=in_kueue,
        all_namespaces=all_namespaces,
    )


def to_cluster(
    nodes: Sequence[shapes.Node],
    pods: Iterable[shapes.Occupant],
    places: Iterable[dialects.Place],
    waiting: Iterable[dialects.InQueue] = (),
    *,
    me: str,
    gpu_type: str | None = None,
    tolerations: Sequence[Toleration] = GPU_TOLERATIONS,
) -> Cluster:
    """A snapshot as placement reads it. `me` is our namespace: runs of others carry theirs in the name."""
    use = _add_up(pods, places, me)
    resource = gpu_resource(nodes, gpu_type)
    found, left_out = [], []
    for each in sorted(nodes, key=lambda node: node.metadata.name):
        taken = use.get(each.metadata.name, _Use())
        node = _to_node(each, taken, resource)
        closed = why_closed(each, tolerations) or _why_full(each, taken)
        if closed is None:
            found.append(node)
        else:
            out = LeftOut(node=node, why=closed.why, passing=closed.passing, hint=closed.hint)
            left_out.append(out)
    return Cluster(
        nodes=tuple(found),
        left_out=tuple(left_out),
        waiting=queued_runs(waiting, me),
        here=False,
        gpu_resource=resource,
    )


def no_such_nodes(nodes: Iterable[shapes.Node], wanted: Mapping[str, str]) -> Unplaceable:
    """The refusal of a node selector that selects no node: which label no node has, and what nodes have."""
    labels = [node.metadata.labels for node in nodes]
    for key, value in wanted.items():
        there = sorted({each[key] for each in labels if key in each})
        if value in there:
            continue
        hint = (
            f"nodes have {', '.join(f'{key}={each}' for each in there[:_NAMED])}"
            if there
            else (f"no node has a label {key}; `kubectl get nodes --show-labels` shows what they have")
        )
        return Unplaceable(f"no node has {key}={value}", hint=hint)
    together = " and ".join(f"{key}={value}" for key, value in wanted.items())
    return Unplaceable(f"no node has {together} together", hint="ask for fewer labels with --node-selector")


def queued_runs(waiting: Iterable[dialects.InQueue], me: str, now: float | None = None) -> tuple[str, ...]:
    """The runs of our namespace that wait to be admitted, in the order in which they are: by priority, then
    the oldest first. One whose tender was killed, so that admission was not tried lately, keeps no other run
    waiting.
    """
    now = time.time() if now is None else now
    order = [
        (-each.priority, each.created, each.run)
        for each in waiting
        if each.namespace == me and now - each.tried < TRIED_WITHIN
    ]
    return tuple(name for _, _, name in sorted(order))


def is_bound(pod: shapes.Occupant) -> bool:
    """Whether a pod takes room on a node."""
    return bool(pod.spec.node_name) and pod.status.phase not in ENDED


@frozen
class Closed:
    """Why a node takes no worker now; `passing` if that is temporary."""

    why: str
    passing: bool
    hint: str = ""


def why_closed(node: shapes.Node, tolerations: Sequence[Toleration]) -> Closed | None:
    """Why a node takes no worker now; None if it takes them."""
    ready = [each.status for each in node.status.conditions if each.type == "Ready"]
    if ready != ["True"]:
        return Closed(why="not ready", passing=True)
    if node.spec.unschedulable:
        return Closed(why="cordoned", passing=True)
    if (system := node.metadata.labels.get(names.SYSTEM, "linux")) != "linux":
        return Closed(why=f"runs {system}", passing=False)
    for taint in node.spec.taints:
        if taint.effect != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations):
            text = f"{taint.key}={taint.value}" if taint.value else taint.key
            passing = taint.key.startswith(_PASSING)
            hint = "" if passing else f"--toleration {text}:{taint.effect}"
            return Closed(why=f"taint {text}:{taint.effect}", passing=passing, hint=hint)
    return None


def _add_up(pods: Iterable[shapes.Occupant], places: Iterable[dialects.Place], me: str) -> dict[str, _Use]:
    use: dict[str, _Use] = {}
    there = set()
    for pod in pods:
        about = pod.metadata
        if is_bound(pod):
            holder = holder_of(about, me)
            use.setdefault(pod.spec.node_name, _Use()).add(pod_requests(pod.spec), holder)
            there.add((about.namespace, dialects.pod_of(about.labels)))
    for place in places:  # a plan takes its share before the pods exist
        if place.node and (place.namespace, place.pod) not in there:
            holder = run_name(place.namespace, place.run, me)
            use.setdefault(place.node, _Use()).add(pod_requests(place.spec), holder)
    return use


def _to_node(node: shapes.Node, use: _Use, resource: str) -> Node:
    have = {name: amount_of(amount) for name, amount in node.status.allocatable.items()}
    free = {name: max(0, amount - use.taken.get(name, 0)) for name, amount in have.items()}
    other = {name: amount // 1000 for name, amount in have.items() if _is_other(name) and amount}
    return Node(
        name=node.metadata.name,
        cpus=have.get("cpu", 0) / 1000,
        memory=have.get("memory", 0) / 1000,
        free_cpus=free.get("cpu", 0) / 1000,
        free_memory=free.get("memory", 0) / 1000,
        gpus=gpus_of(node, resource, have.get(resource, 0) // 1000, use.holders.get(resource, {})),
        other=other,
        free_other={name: free[name] // 1000 for name in other},
        domains=_domains(node.metadata.labels),
    )


def _why_full(node: shapes.Node, use: _Use) -> Closed | None:
    most = node.status.allocatable.get("pods")
    if most is None or 1000 * use.pods < amount_of(most):
        return None
    return Closed(why=f"full: {use.pods} pods", passing=True)


def _domains(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The parts of the network that a node belongs to, the widest first."""
    levels = ((names.ZONE,), names.BLOCKS, names.RACKS, (names.GPU_CLIQUE,))
    return tuple(next((labels[key] for key in keys if labels.get(key)), "") for keys in levels)


def _is_other(name: str) -> bool:
    """Whether --resource requests it: devices and huge pages, not what every node has."""
    return "/" in name or name.startswith("hugepages-")


def _tolerates(toleration: Toleration, taint: shapes.Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    if toleration.get("key") not in (None, "", taint.key):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.value
