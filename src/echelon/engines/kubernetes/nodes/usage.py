"""What uses a cluster now: GPUs, CPUs and memory by node and by run, as `echelon top --on k8s` shows them.

Counted from the requests of pods, as the scheduler counts; no metrics server is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.nodes.gpus import is_gpu
from echelon.engines.kubernetes.nodes.holder_names import holder_of, run_name
from echelon.engines.kubernetes.nodes.holders import find_holders
from echelon.engines.kubernetes.nodes.requests import Sums, pod_requests
from echelon.engines.kubernetes.ownership.kubeflow_labels import job_of
from echelon.model.engine.cluster import Node
from echelon.model.engine.usage import ClusterRun, ClusterUsage, NodeUse


@dataclass(slots=True)
class _Sum:
    """The sum over one run's pods."""

    pods: int = 0
    running: bool = False
    asked: Sums = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)


def to_usage(seen: inventory.Seen, me: str) -> ClusterUsage:
    """What is used by node and run, from the listed objects. Pure."""
    return ClusterUsage(
        namespace=me,
        nodes=None if seen.nodes is None else tuple(_node_uses(seen, seen.nodes, me)),
        runs=(
            *_run_uses(seen, me),
            *map(_waiting, inventory.queued_runs(seen.waiting, me)),
        ),
        holders=find_holders(seen, me),
    )


def with_damaged(usage: ClusterUsage, damaged: Sequence[str]) -> ClusterUsage:
    """The same, with a line for each run of the namespace whose record cannot be read. Pure."""
    shown = {each.name for each in usage.runs}
    runs = [replace(each, state="damaged") if each.name in damaged else each for each in usage.runs]
    lost = [_nothing_of(name, "damaged") for name in damaged if name not in shown]
    return replace(usage, runs=(*runs, *lost))


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
        found.setdefault(run_name(place.namespace, place.run, me), _Sum())
    for pod in seen.pods:
        about = pod.metadata
        is_worker = about.labels.get(names.RUN) and about.labels.get(names.COMPONENT) == names.WORKER
        if is_worker or _is_of_other_job(pod):
            one = found.setdefault(holder_of(about, me), _Sum())
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
            gpus=sum(amount for asked, amount in one.asked.items() if is_gpu(asked)) // 1000,
            nodes=tuple(sorted(one.nodes)),
        )


def _is_of_other_job(pod: shapes.Occupant) -> bool:
    """Whether a pod with GPUs belongs to a job that a controller of Kubeflow's looks after."""
    labels = pod.metadata.labels
    theirs = names.RUN not in labels and job_of(labels) is not None
    return theirs and inventory.is_bound(pod) and any(map(is_gpu, pod_requests(pod.spec)))


def _waiting(name: str) -> ClusterRun:
    return _nothing_of(name, "queued")


def _nothing_of(name: str, state: str) -> ClusterRun:
    return ClusterRun(name=name, state=state, workers=0, cpus=0, memory=0, gpus=0)
