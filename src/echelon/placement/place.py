"""Find a seat for every worker of a world in a snapshot of the cluster, all or none.

Called by `admission.py` and the dry run. Workers take the first node on which they fit, nodes with the least
free GPUs first, so that what stays free stays together."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from echelon.errors import Unplaceable
from echelon.model.cluster import Cluster, Gpu, Node, matches_type
from echelon.model.plan import Placement, Seat
from echelon.model.resources import Resources, format_memory
from echelon.model.world import World, members

_DUST = 1e-6  # of a core: what rounding may leave of sums of fractions
_NAMED = 4  # nodes or holders that a sentence names before it counts the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoom:
    """The world would fit, but not now; `reason` says what it waits for."""

    reason: str


@dataclass(slots=True)
class _Room:
    """What is still free on a node while seats are being given out."""

    node: Node
    gpus: list[Gpu]
    cpus: float
    memory: float
    other: dict[str, int]


def place(world: World, cluster: Cluster) -> Placement | NoRoom:
    """Seat every worker on what is free; NoRoom if it must wait; Unplaceable if even an empty cluster could
    not hold it. What nobody let us look at has room for everybody: seats without a node.
    """
    if not cluster.known:
        return Placement(seats=tuple(Seat(worker=member.worker, node="") for member in members(world)))
    free = [
        _Room(
            node,
            [g for g in node.gpus if g.holder is None],
            node.free_cpus,
            node.free_memory,
            dict(node.other if node.free_other is None else node.free_other),
        )
        for node in cluster.nodes
    ]
    seats = _seat(world, free)
    if seats is not None:
        return Placement(seats=tuple(seats))
    nodes = _all_nodes(cluster)
    empty = [_Room(node, list(node.gpus), node.cpus, node.memory, dict(node.other)) for node in nodes]
    if _seat(world, empty) is None:
        raise _too_large(world, cluster)
    return NoRoom(reason=_what_is_missing(world, cluster))


def _seat(world: World, rooms: Sequence[_Room]) -> list[Seat] | None:
    seats = []
    fitting: list[tuple[int, str, int]] = []  # a heap: GPUs that match, the node's name, which room
    group = None
    for member in members(world):
        need = world.groups[member.group].resources
        if member.group != group:  # workers of a group are alike: a room changes only when one has sat down
            group = member.group
            fitting = [_rank(need, room, at) for at, room in enumerate(rooms) if _fits(need, room)]
            heapq.heapify(fitting)
        if not fitting:
            return None
        at = heapq.heappop(fitting)[-1]
        room = rooms[at]
        mine = _matching(need, room.gpus)[: need.gpus]
        room.gpus = [gpu for gpu in room.gpus if gpu not in mine]
        room.cpus -= need.cpus.request if need.cpus else 0
        room.memory -= need.memory.request if need.memory else 0
        for name, count in need.other.items():
            room.other[name] -= count
        seats.append(Seat(worker=member.worker, node=room.node.name, gpus=tuple(gpu.id for gpu in mine)))
        if _fits(need, room):
            heapq.heappush(fitting, _rank(need, room, at))
    return seats


def _rank(need: Resources, room: _Room, at: int) -> tuple[int, str, int]:
    return len(_matching(need, room.gpus)), room.node.name, at


def _fits(need: Resources, room: _Room) -> bool:
    return (
        len(_matching(need, room.gpus)) >= need.gpus
        and room.cpus >= (need.cpus.request if need.cpus else 0) - _DUST
        and room.memory >= (need.memory.request if need.memory else 0)
        and all(room.other.get(name, 0) >= count for name, count in need.other.items())
    )


def _matching(need: Resources, gpus: Sequence[Gpu]) -> list[Gpu]:
    if need.gpu_type is None:
        return list(gpus)
    fitting = {model for model in {gpu.model for gpu in gpus} if matches_type(need.gpu_type, model)}
    return [gpu for gpu in gpus if gpu.model in fitting]


def _all_nodes(cluster: Cluster) -> list[Node]:
    """Those that take workers, and those that will again."""
    return [*cluster.nodes, *(each.node for each in cluster.left_out if each.passing)]


def _total(world: World) -> tuple[int, float, float]:
    gpus = sum(group.workers * group.resources.gpus for group in world.groups)
    cpus = sum(
        group.workers * (group.resources.cpus.request if group.resources.cpus else 0)
        for group in world.groups
    )
    memory = sum(
        group.workers * (group.resources.memory.request if group.resources.memory else 0)
        for group in world.groups
    )
    return gpus, cpus, memory


def _too_large(world: World, cluster: Cluster) -> Unplaceable:
    gpus, cpus, memory = _total(world)
    nodes = _all_nodes(cluster)
    have = [gpu for node in nodes for gpu in node.gpus]
    where, shut = _where(cluster, len(nodes)), _name_left_out(cluster, gpus=gpus > 0)
    models = sorted({gpu.model for gpu in have if gpu.model})
    if not nodes:
        return Unplaceable("no node takes workers", hint=shut or "the cluster has no nodes")
    for group in world.groups:
        need = group.resources
        if need.gpu_type is not None and not _matching(need, have):
            there_is = f"there is {', '.join(models)}" if models else "leave it out: there is no GPU at all"
            return Unplaceable(
                f"gpu_type {need.gpu_type!r}: {where} no such GPU", hint=_joined(there_is, shut)
            )
        for name in need.other:
            if not any(name in node.other for node in nodes):
                return Unplaceable(
                    f"resource {name!r}: {where} none of it",
                    hint=_joined("leave it out; GPUs are asked for with --gpus", shut),
                )
    hint = _joined("lower --gpus or --workers; `echelon top` shows the GPUs", shut)
    for kind in {group.resources.gpu_type for group in world.groups if group.resources.gpu_type}:
        wanting = [group for group in world.groups if group.resources.gpu_type == kind]
        asked, there = (
            sum(each.workers * each.resources.gpus for each in wanting),
            len(_matching(wanting[0].resources, have)),
        )
        if asked > there:
            return Unplaceable(f"{_counted(asked)} of type {kind} asked for, {where} {there}", hint=hint)
    if gpus > len(have):
        return Unplaceable(f"{_counted(gpus)} asked for, {where} {len(have) or 'none'}", hint=hint)
    for need in (group.resources for group in world.groups):
        most = max(len(_matching(need, node.gpus)) for node in nodes)
        if need.gpus > most:
            return Unplaceable(
                f"{_counted(need.gpus)} per worker asked for, no node has more than {most}", hint=hint
            )
    if cpus > sum(node.cpus for node in nodes):
        return Unplaceable(
            f"{cpus:g} CPUs asked for, {where} {sum(node.cpus for node in nodes):g}",
            hint=_joined("lower --cpus or --workers", shut),
        )
    if memory > sum(node.memory for node in nodes):
        total = sum(node.memory for node in nodes)
        return Unplaceable(
            f"{format_memory(memory)} of memory asked for, {where} {format_memory(total)}",
            hint=_joined("lower --memory or --workers", shut),
        )
    return Unplaceable(
        "no node is large enough for one of the workers",
        hint=_joined("ask for less per worker, and more workers", shut),
    )


def _what_is_missing(world: World, cluster: Cluster) -> str:
    gpus, cpus, memory = _total(world)
    have = [gpu for node in cluster.nodes for gpu in node.gpus]
    free = [gpu for gpu in have if gpu.holder is None]
    free_cpus = sum(node.free_cpus for node in cluster.nodes)
    free_memory = sum(node.free_memory for node in cluster.nodes)
    shut = _name_left_out(cluster, gpus=gpus > 0)
    if gpus <= len(free) and cpus > free_cpus:
        return _joined(f"waiting for {cpus:g} CPUs: {free_cpus:g} not promised to other runs", shut)
    if gpus <= len(free) and memory > free_memory:
        wanted, promised = format_memory(memory), format_memory(free_memory)
        return _joined(f"waiting for {wanted} of memory: {promised} not promised to other runs", shut)
    if gpus:  # too few, or of another model, or on different nodes
        holders = sorted({gpu.holder for gpu in have if gpu.holder is not None})
        held = f", held by {_some(holders)}" if holders else ""
        return _joined(f"waiting for {_counted(gpus)}: {len(free)} of {len(have)} free{held}", shut)
    return _joined("waiting until one node has room for a worker", shut)


def _where(cluster: Cluster, nodes: int) -> str:
    if cluster.here and nodes == 1:
        return "this machine has"
    return "the only node has" if nodes == 1 else f"the {nodes} nodes have"


def _name_left_out(cluster: Cluster, *, gpus: bool) -> str:
    """The nodes that were not asked, by reason; of those without GPUs only where none are wanted."""
    why: dict[str, list[str]] = {}
    for each in cluster.left_out:
        if each.node.gpus or not gpus:
            why.setdefault(each.why, []).append(each.node.name)
    told = (f"{_some(names)} ({reason})" for reason, names in why.items())
    return f"left out: {', '.join(told)}" if why else ""


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:_NAMED])} and {more} more"


def _joined(first: str, second: str) -> str:
    return f"{first}; {second}" if second else first


def _counted(gpus: int) -> str:
    return f"{gpus} GPU{'s' * (gpus != 1)}"
