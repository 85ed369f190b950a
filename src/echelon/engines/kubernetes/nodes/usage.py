"""What uses a cluster now: GPUs, CPUs and memory by node and by run, as `echelon top --on k8s` shows them.

Counted from the requests of pods, as the scheduler counts; no metrics server is needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.nodes.requests import Sums, pod_requests
from echelon.model.cluster import Node
from echelon.model.usage import ClusterRun, ClusterUsage, NodeUse

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api


@dataclass(slots=True)
class _Sum:
    """The sum over one run's pods."""

    pods: int = 0
    running: bool = False
    asked: Sums = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)


def measure_usage(api: Api) -> ClusterUsage:
    """Look at the cluster, as far as the user's rights go."""
    return to_usage(inventory.see(api), api.namespace)


def to_usage(seen: inventory.Seen, me: str) -> ClusterUsage:
    """What is used by node and run, from the listed objects. Pure."""
    return ClusterUsage(
        namespace=me,
        nodes=None if seen.nodes is None else tuple(_node_uses(seen, seen.nodes, me)),
        runs=(*_run_uses(seen, me), *map(_waiting, inventory.queued_runs(seen.records, me))),
    )


def _node_uses(seen: inventory.Seen, nodes: list[shapes.Node], me: str) -> Iterable[NodeUse]:
    cluster = inventory.to_cluster(nodes, seen.pods, seen.places, me=me)
    state = {each.node.name: each.why for each in cluster.left_out}
    everyone = [*cluster.nodes, *(each.node for each in cluster.left_out)]
    for node in sorted(everyone, key=lambda each: (not each.gpus, each.name)):
        users: dict[str, int] = {}
        for gpu in node.gpus:
            if gpu.holder is not None:
                users[gpu.holder] = users.get(gpu.holder, 0) + 1
        yield _node_use(node, state.get(node.name, "ready"), users if seen.all_namespaces else None)


def _node_use(node: Node, state: str, users: dict[str, int] | None) -> NodeUse:
    known = users is not None
    return NodeUse(
        node=node.name,
        state=state,
        model=node.gpus[0].model if node.gpus else "",
        gpus=len(node.gpus),
        gpus_used=None if users is None else sum(users.values()),
        cpus=node.cpus,
        cpus_used=round(node.cpus - node.free_cpus, 3) if known else None,
        memory=int(node.memory),
        memory_used=int(node.memory - node.free_memory) if known else None,
        users=users,
    )


def _run_uses(seen: inventory.Seen, me: str) -> Iterable[ClusterRun]:
    found: dict[str, _Sum] = {}
    for place in seen.places:
        found.setdefault(_run_name(place.namespace, place.run, me), _Sum())
    for pod in seen.pods:
        about = pod.metadata
        run = about.labels.get(names.RUN, "")
        if run and about.labels.get(names.COMPONENT) == names.WORKER:
            one = found.setdefault(_run_name(about.namespace, run, me), _Sum())
            one.pods += 1
            one.running |= pod.status.phase == "Running"
            one.nodes.add(pod.spec.node_name)
            for name, amount in pod_requests(pod.spec).items():
                one.asked[name] = one.asked.get(name, 0) + amount
    for name, one in sorted(found.items(), key=lambda each: ("/" in each[0], each[0])):  # ours first
        yield ClusterRun(
            name=name,
            state="running" if one.running else "starting",
            workers=one.pods,
            cpus=one.asked.get("cpu", 0) / 1000,
            memory=one.asked.get("memory", 0) // 1000,
            gpus=(one.asked.get(names.GPU, 0) + one.asked.get(names.AMD_GPU, 0)) // 1000,
            nodes=tuple(sorted(one.nodes)),
        )


def _run_name(namespace: str, run: str, me: str) -> str:
    return inventory.holder_of(namespace, run, run, me)


def _waiting(name: str) -> ClusterRun:
    return ClusterRun(name=name, state="queued", workers=0, cpus=0, memory=0, gpus=0)
