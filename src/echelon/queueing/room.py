"""What is free in a snapshot of a cluster, as the queue's policy asks for it: a place for this run, what is
free once those runs have ended. Pure.

Runs see different nodes (selectors, tolerations, models of GPUs), so there is a view of the snapshot for each
kind of run; `view` gives the one of a job, the same object for jobs that see the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.queue import QueuedRun
from echelon.model.world import gpu_count
from echelon.placement import NoRoom
from echelon.planning import fit
from echelon.queueing.nodes_now import Changes, Nodes, Origin, Taken, takes
from echelon.queueing.rooms import Full, Seated
from echelon.values import frozen


@frozen
class _Seen:
    """A run, the view that it has of the snapshot, and what decides which places it can have."""

    run: QueuedRun
    view: Cluster
    kind: Hashable


@dataclass(slots=True)
class _Snapshot:
    """What all Rooms of one snapshot share, found out when it is asked for."""

    seen: dict[str, _Seen] = field(default_factory=dict)
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

    def _see(self, run: QueuedRun) -> _Seen:
        seen = self._snapshot.seen.get(run.name)
        if seen is None or seen.run is not run:
            job, view = run.job, self.view(run.job)
            roles = tuple((role.name, role.workers, repr(role.resources)) for role in job.roles)
            kind = (id(view), repr(job.shape), repr(job.resources), job.workers, roles, repr(run.world))
            seen = self._snapshot.seen[run.name] = _Seen(run=run, view=view, kind=kind)
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
