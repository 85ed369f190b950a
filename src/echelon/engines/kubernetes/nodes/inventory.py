"""Nodes, pods, places kept for workers, and records, as the Cluster that placement reads: what is taken.

`look` asks the API server and needs the right to list nodes and the pods of all namespaces; without it the
scheduler alone places a run, and all else works. `to_cluster` is pure. Kubernetes reports how many of a
node's GPUs a pod has, not which: the GPUs here are counted, not identified."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.nodes.requests import Sums, pod_requests
from echelon.engines.kubernetes.quantities import amount_of, to_whole
from echelon.engines.kubernetes.record import Outline, created, is_queued
from echelon.engines.kubernetes.render import dialects
from echelon.model.cluster import Cluster, Gpu, LeftOut, Node

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api

Toleration = Mapping[str, Any]
# Every worker with GPUs tolerates the taints by which clusters keep other pods away from their GPUs.
GPU_TOLERATIONS: tuple[Toleration, ...] = (
    {"key": names.GPU, "operator": "Exists"},
    {"key": names.AMD_GPU, "operator": "Exists"},
)
ENDED = ("Succeeded", "Failed")  # phases of pods that hold nothing any more
# Taints that come and go with a node's health or lifecycle; an administrator sets all others.
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeleted", "karpenter.sh/disrupt")
_AMD = "amd-"  # the prefix of an AMD GPU's number
_MOST_GPUS = 4096  # of one node, more than any has


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The objects that the user may list; `nodes` is None, and `all_namespaces` False, where they may not."""

    nodes: list[shapes.Node] | None
    pods: list[shapes.Pod]
    places: list[dialects.Place]
    records: list[Outline]
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
            if name in (names.GPU, names.AMD_GPU) and amount:
                held = self.holders.setdefault(name, {})
                held[holder] = held.get(holder, 0) + amount


def look(
    api: Api,
    *,
    gpus: bool = True,
    selector: str = "",
    tolerations: Sequence[Toleration] = (),
) -> Cluster:
    """The cluster as it is now for workers with these tolerations, on nodes that `selector` selects."""
    seen = see(api, selector=selector)
    if seen.nodes is None or not seen.all_namespaces:
        return Cluster(nodes=(), waiting=queued_runs(seen.records, api.namespace), known=False, here=False)
    return to_cluster(
        seen.nodes,
        seen.pods,
        seen.places,
        seen.records,
        me=api.namespace,
        tolerations=(*tolerations, *(GPU_TOLERATIONS if gpus else ())),
    )


def see(api: Api, *, selector: str = "") -> Seen:
    """List the objects that show what is used, as far as the user's rights go."""
    from echelon.engines.kubernetes.client.api import ALL
    from echelon.errors import Denied

    ours = f"{names.MANAGED_BY}=echelon,{names.COMPONENT}={names.WORKER}"
    # The API server filters out ended and unscheduled pods: a cluster's history may be long.
    bound = ",".join(["spec.nodeName!=", *(f"status.phase!={phase}" for phase in ENDED)])

    def listed(kind: str, shape: type[shapes.T], **which: str) -> list[shapes.T] | None:
        try:
            return list(api.list_shapes(kind, shape, **which))
        except Denied:
            return None

    nodes = listed("Node", shapes.Node, selector=selector)
    pods = listed("Pod", shapes.Pod, fields=bound, namespace=ALL)
    all_namespaces = pods is not None
    if pods is None:
        pods = listed("Pod", shapes.Pod, fields=bound)
    places: list[dialects.Place] = []
    for dialect in dialects.DIALECTS.values():
        for kind in dialect.KINDS:
            found = listed(kind, dialect.Shape, selector=ours, namespace=ALL)
            if found is None:
                found = listed(kind, dialect.Shape, selector=ours)
            places += [place for obj in found or () for place in dialect.places(obj)]
    records = listed("ConfigMap", Outline, selector=f"{names.COMPONENT}={names.RECORD}")
    return Seen(
        nodes=nodes, pods=pods or [], places=places, records=records or [], all_namespaces=all_namespaces
    )


def to_cluster(
    nodes: Sequence[shapes.Node],
    pods: Iterable[shapes.Pod],
    places: Iterable[dialects.Place],
    records: Iterable[Outline] = (),
    *,
    me: str,
    tolerations: Sequence[Toleration] = GPU_TOLERATIONS,
) -> Cluster:
    """A snapshot as placement reads it. `me` is our namespace: runs of others carry theirs in the name."""
    use = _add_up(pods, places, me)
    vendor = gpu_resource(nodes)
    found, left_out = [], []
    for each in sorted(nodes, key=lambda node: node.metadata.name):
        taken = use.get(each.metadata.name, _Use())
        node = _to_node(each, taken, vendor)
        closed = why_closed(each, tolerations) or _why_full(each, taken)
        if closed is None:
            found.append(node)
        else:
            out = LeftOut(node=node, why=closed.why, passing=closed.passing, hint=closed.hint)
            left_out.append(out)
    return Cluster(nodes=tuple(found), left_out=tuple(left_out), waiting=queued_runs(records, me), here=False)


def gpu_resource(nodes: Iterable[shapes.Node]) -> str:
    """The resource that `--gpus` requests in this cluster: NVIDIA's where there is any, else AMD's.

    A gang cannot mix them; where a cluster has both, --resource requests AMD's."""
    amd = False
    for node in nodes:
        if names.GPU in node.status.capacity or names.GPU in node.status.allocatable:
            return names.GPU
        amd = amd or names.AMD_GPU in node.status.allocatable
    return names.AMD_GPU if amd else names.GPU


def resource_of(gpus: Iterable[str]) -> str:
    """The resource that a worker planned on these GPUs requests; NVIDIA's where none are known."""
    return names.AMD_GPU if any(f"/{_AMD}" in gpu for gpu in gpus) else names.GPU


def queued_runs(records: Iterable[Outline], me: str, now: float | None = None) -> tuple[str, ...]:
    """The runs of our namespace that wait to be admitted, the oldest first.

    One whose tender was killed, so that admission was not tried lately, keeps no other run waiting."""
    now = time.time() if now is None else now
    waiting = [each for each in records if each.metadata.namespace == me and is_queued(each, now)]
    return tuple(name for _, name in sorted((created(each), each.metadata.name) for each in waiting))


def holder_of(namespace: str, run: str, pod: str, me: str) -> str:
    """The name of a GPU's holder: the run for one of echelon's, else namespace and pod."""
    if run:
        return run if namespace == me else f"{namespace}/{run}"
    return f"{namespace}/{pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Why a node takes no worker now; `passing` if that is temporary."""

    why: str
    passing: bool
    hint: str = ""


def why_closed(node: shapes.Node, tolerations: Sequence[Toleration]) -> Closed | None:
    """Why a node takes no worker now; None if it takes them."""
    ready = [each.status for each in node.status.conditions or () if each.type == "Ready"]
    if ready != ["True"]:
        return Closed(why="not ready", passing=True)
    if node.spec.unschedulable:
        return Closed(why="cordoned", passing=True)
    if node.metadata.labels.system != "linux":
        return Closed(why=f"runs {node.metadata.labels.system}", passing=False)
    for taint in node.spec.taints or ():
        if taint.effect != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations):
            text = f"{taint.key}={taint.value}" if taint.value else taint.key
            passing = taint.key.startswith(_PASSING)
            hint = "" if passing else f"--toleration {text}:{taint.effect}"
            return Closed(why=f"taint {text}:{taint.effect}", passing=passing, hint=hint)
    return None


def _add_up(pods: Iterable[shapes.Pod], places: Iterable[dialects.Place], me: str) -> dict[str, _Use]:
    use: dict[str, _Use] = {}
    there = set()
    for pod in pods:
        about = pod.metadata
        if pod.spec.node_name and pod.status.phase not in ENDED:
            holder = holder_of(about.namespace, about.labels.get(names.RUN, ""), about.name, me)
            use.setdefault(pod.spec.node_name, _Use()).add(pod_requests(pod.spec), holder)
            there.add((about.namespace, dialects.pod_of(about.labels)))
    for place in places:  # a plan takes its share before the pods exist
        if place.node and (place.namespace, place.pod) not in there:
            holder = holder_of(place.namespace, place.run, place.run, me)
            use.setdefault(place.node, _Use()).add(pod_requests(place.spec), holder)
    return use


def _to_node(node: shapes.Node, use: _Use, vendor: str) -> Node:
    have = {name: amount_of(amount) for name, amount in node.status.allocatable.items()}
    free = {name: max(0, amount - use.taken.get(name, 0)) for name, amount in have.items()}
    other = {name: amount // 1000 for name, amount in have.items() if _is_other(name) and amount}
    return Node(
        name=node.metadata.name,
        cpus=have.get("cpu", 0) / 1000,
        memory=have.get("memory", 0) / 1000,
        free_cpus=free.get("cpu", 0) / 1000,
        free_memory=free.get("memory", 0) / 1000,
        gpus=_to_gpus(node, have.get(vendor, 0) // 1000, use.holders.get(vendor, {}), vendor),
        other=other,
        free_other={name: free[name] // 1000 for name in other},
    )


def _why_full(node: shapes.Node, use: _Use) -> Closed | None:
    most = node.status.allocatable.get("pods")
    if most is None or 1000 * use.pods < amount_of(most):
        return None
    return Closed(why=f"full: {use.pods} pods", passing=True)


def _to_gpus(node: shapes.Node, count: int, holders: Sums, vendor: str) -> tuple[Gpu, ...]:
    about = node.metadata.labels
    model = about.product if vendor == names.GPU else about.amd_product
    count = min(count, _MOST_GPUS)
    # A pod may ask for more than there is, and be bound to the node by who made it.
    shares = ((name, min(amount // 1000, count)) for name, amount in sorted(holders.items()))
    held: list[str | None] = [name for name, share in shares for _ in range(share)]
    place = f"{node.metadata.name}/{_AMD if vendor == names.AMD_GPU else ''}"
    return tuple(
        Gpu(id=f"{place}{number}", model=model, memory=_gpu_memory(about, vendor), holder=holder)
        for number, holder in enumerate([*held, *[None] * count][:count])
    )


def _gpu_memory(about: shapes.NodeLabels, vendor: str) -> int:
    try:
        if vendor == names.GPU:
            return int(about.memory) * 2**20
        return to_whole(f"{about.amd_memory}i" if about.amd_memory[-1:].isalpha() else about.amd_memory)
    except ValueError:  # no such label, or an unknown form
        return 0


def _is_other(name: str) -> bool:
    """Whether --resource requests it: devices and huge pages, not what every node has."""
    return "/" in name or name.startswith("hugepages-")


def _tolerates(toleration: Toleration, taint: shapes.Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    if toleration.get("key") not in (None, "", taint.key):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.value
