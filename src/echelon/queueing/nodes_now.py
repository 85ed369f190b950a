"""The nodes of a snapshot as they are after runs were given places or have ended, and how many GPUs are free.

A decision over a queue makes hundreds of such states, each of which differs from another in a few nodes: only
these are made anew. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from echelon.model.engine.cluster import Cluster, Node, free_gpus
from echelon.model.plan import Plan
from echelon.model.resources import Resources
from echelon.model.world import members
from echelon.values import frozen


@frozen
class Taken:
    """What one worker of a run that was given a place takes of a node."""

    holder: str
    node: str
    gpus: frozenset[str]
    resource: str  # that the GPUs are
    need: Resources


@frozen
class Changes:
    """What was given away, by node, and which runs have ended since the snapshot."""

    taken: Mapping[str, tuple[Taken, ...]]
    gone: frozenset[str]


@frozen
class Nodes:
    """A view of a snapshot as it is now; `free` has how many nodes have so many free GPUs."""

    cluster: Cluster
    free: Mapping[int, int]


class Origin:
    """A view of a snapshot as it was, and where each run holds GPUs in it."""

    def __init__(self, view: Cluster) -> None:
        self._view = view
        self._at = {node.name: at for at, node in enumerate(view.nodes)}
        self._held: dict[str, set[str]] = {}
        for node in view.nodes:
            for gpu in node.gpus:
                if gpu.holder is not None:
                    self._held.setdefault(gpu.holder, set()).add(node.name)

    def nodes_of(self, holders: Collection[str]) -> Iterator[str]:
        """The nodes on which these runs hold GPUs."""
        for holder in holders:
            yield from self._held.get(holder, ())

    def first(self, changes: Changes) -> Nodes:
        """All nodes."""
        nodes = tuple(_as_now(node, self._view.gpu_resource, changes) for node in self._view.nodes)
        free: dict[int, int] = {}
        for node in nodes:
            count = free_gpus(node)
            free[count] = free.get(count, 0) + 1
        return Nodes(cluster=replace(self._view, nodes=nodes), free=free)

    def next(self, before: Nodes, changed: Iterable[str], changes: Changes) -> Nodes:
        """The same nodes, those made anew that have changed."""
        nodes, free = list(before.cluster.nodes), dict(before.free)
        for name in changed:
            at = self._at.get(name)
            if at is None:
                continue  # a node that this view does not have
            free[free_gpus(nodes[at])] -= 1
            nodes[at] = _as_now(self._view.nodes[at], self._view.gpu_resource, changes)
            count = free_gpus(nodes[at])
            free[count] = free.get(count, 0) + 1
        return Nodes(cluster=replace(before.cluster, nodes=tuple(nodes)), free=free)


def takes(holder: str, plan: Plan) -> Iterator[Taken]:
    """What a run takes that starts with this plan."""
    for member, seat in zip(members(plan.world), plan.placement.seats, strict=True):
        yield Taken(
            holder=holder,
            node=seat.node,
            gpus=frozenset(seat.gpus),
            resource=plan.gpu_resource,
            need=plan.world.groups[member.group].resources,
        )


def _as_now(node: Node, resource: str, changes: Changes) -> Node:
    here, gone = changes.taken.get(node.name, ()), changes.gone
    freed = any(gpu.holder in gone for gpu in node.gpus)
    if not here and not freed:
        return node
    taken = {gpu: each.holder for each in here if each.resource == resource for gpu in each.gpus}
    holders = (taken.get(gpu.id, None if gpu.holder in gone else gpu.holder) for gpu in node.gpus)
    gpus = tuple(
        gpu if gpu.holder == holder else replace(gpu, holder=holder)
        for gpu, holder in zip(node.gpus, holders, strict=True)
    )
    # What a run that ends has of CPUs and memory is not known; a time that is too early delays no run.
    cpus, memory = (node.cpus, node.memory) if freed else (node.free_cpus, node.free_memory)
    other = dict(node.other if freed or node.free_other is None else node.free_other)
    for need in (each.need for each in here):
        cpus -= 0.0 if need.cpus is None else need.cpus.request
        memory -= 0.0 if need.memory is None else need.memory.request
        for name, count in need.other.items():
            other[name] = other.get(name, 0) - count
    return replace(node, gpus=gpus, free_cpus=cpus, free_memory=memory, free_other=other)
