"""What is free in a snapshot of a cluster, as the queue's policy asks for it: a place for this run, what is
free once those runs have ended. Pure.

Runs see different nodes (selectors, tolerations, models of GPUs), so there is a view of the snapshot for each
kind of run; `view` gives the one of a job, the same object for jobs that see the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster, Node, free_gpus
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.queue import QueuedRun
from echelon.model.resources import Resources
from echelon.model.world import gpu_count, members
from echelon.placement import NoRoom
from echelon.planning import fit
from echelon.queueing.policy import Full, Seated
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


@frozen
class _RunView:
    """A run, the view that it has of the snapshot, and what decides which places it can have."""

    run: QueuedRun
    view: Cluster
    kind: Hashable


@dataclass(slots=True)
class _Snapshot:
    """What all Rooms of one snapshot share, found out when it is asked for."""

    seen: dict[str, _RunView] = field(default_factory=dict)
    origins: dict[int, Origin] = field(default_factory=dict)
    waits: dict[Hashable, Full] = field(default_factory=dict)  # the last answer for runs of a kind


@dataclass(slots=True)
class _View:
    """A view as it was when it was last asked for, and the nodes that have changed since."""

    nodes: Nodes
    changed: frozenset[str]


@frozen
class ClusterRoom:
    """A snapshot, with what was given away and what was released since."""

    view: Callable[[Job], Cluster]
    taken: Mapping[str, tuple[Taken, ...]] = field(default_factory=dict)  # by node
    gone: frozenset[str] = frozenset()
    _snapshot: _Snapshot = field(default_factory=_Snapshot, compare=False, repr=False)
    _views: dict[int, _View] = field(default_factory=dict, compare=False, repr=False)
    _full: dict[Hashable, Full] = field(default_factory=dict, compare=False, repr=False)

    def take(self, run: QueuedRun) -> Seated[ClusterRoom] | Full:
        """Find a plan for the run on what is free."""
        kind = self._see(run).kind
        known = self._full.get(kind)
        if known is not None:
            return known  # of an equal run
        before = self._snapshot.waits.get(kind)
        if before is not None and not _could_fit(run, self._now(run)):
            return before
        found: Plan | NoRoom | Unplaceable
        try:
            found = fit(run.job, self._now(run).cluster, world=run.world)
        except Unplaceable as error:
            found = error
        if not isinstance(found, Plan):
            full = self._full[kind] = self._snapshot.waits[kind] = _to_full(found)
            return full
        return Seated(room=self._with(takes(run.name, found)), gpus=gpu_count(found.world))

    def without(self, names: Collection[str]) -> ClusterRoom:
        """Free what these runs hold."""
        gone = frozenset(names)
        touched = {node for node, there in self.taken.items() if any(each.holder in gone for each in there)}
        left = dict(self.taken)
        for node in touched:
            left[node] = tuple(each for each in left[node] if each.holder not in gone)
        return ClusterRoom(
            view=self.view,
            taken=left,
            gone=self.gone | gone,
            _snapshot=self._snapshot,
            _views=self._changed(touched, gone),
        )

    def _with(self, more: Iterable[Taken]) -> ClusterRoom:
        """What is left once this is given away. What has found no place before finds none in less."""
        taken, touched = dict(self.taken), set()
        for each in more:
            taken[each.node] = (*taken.get(each.node, ()), each)
            touched.add(each.node)
        return ClusterRoom(
            view=self.view,
            taken=taken,
            gone=self.gone,
            _snapshot=self._snapshot,
            _views=self._changed(touched),
            _full=dict(self._full),
        )

    def _changed(self, touched: Collection[str], gone: Collection[str] = ()) -> dict[int, _View]:
        origins = self._snapshot.origins
        return {
            key: _View(known.nodes, known.changed.union(touched, origins[key].nodes_of(gone)))
            for key, known in self._views.items()
        }

    def _see(self, run: QueuedRun) -> _RunView:
        seen = self._snapshot.seen.get(run.name)
        if seen is None or seen.run is not run:
            job, view = run.job, self.view(run.job)
            roles = tuple((role.name, role.workers, repr(role.resources)) for role in job.roles)
            kind = (id(view), repr(job.shape), repr(job.resources), job.workers, roles, repr(run.world))
            seen = self._snapshot.seen[run.name] = _RunView(run=run, view=view, kind=kind)
        return seen

    def _now(self, run: QueuedRun) -> Nodes:
        """The run's view of the snapshot, as it is now."""
        view = self._see(run).view
        key = id(view)
        origin = self._snapshot.origins.get(key)
        if origin is None:
            origin = self._snapshot.origins[key] = Origin(view)
        known, changes = self._views.get(key), Changes(taken=self.taken, gone=self.gone)
        if known is None:
            known = self._views[key] = _View(origin.first(changes), frozenset())
        elif known.changed:
            known = self._views[key] = _View(origin.next(known.nodes, known.changed, changes), frozenset())
        return known.nodes


def _could_fit(run: QueuedRun, nodes: Nodes) -> bool:
    """Whether enough GPUs are free, and enough of them together: what can be counted at once."""
    if not nodes.cluster.known:
        return True
    job = run.job
    each = job.resources.gpus if job.shape is None and run.world is None else 0
    if sum(free * count for free, count in nodes.free.items()) < run.gpus:
        return False
    return not each or sum(free // each * count for free, count in nodes.free.items()) >= job.workers


def _to_full(found: NoRoom | Unplaceable) -> Full:
    if isinstance(found, NoRoom):
        return Full(reason=found.reason)
    return Full(reason=found.message, never=True)
