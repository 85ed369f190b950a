"""Find a seat for every worker of a world in a snapshot of the cluster, all or none.

Called by `admission.py` and the dry run. Workers take the first node on which they fit, nodes with the least
free GPUs first, so that what stays free stays together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echelon.errors import Unplaceable
from echelon.model.cluster import Cluster, Gpu, Node
from echelon.model.plan import Placement, Seat
from echelon.model.resources import Resources, format_memory
from echelon.model.world import World, members

_DUST = 1e-6  # of a core: what rounding may leave of sums of fractions


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
    not hold it.
    """
    free = [
        _Room(
            node,
            [g for g in node.gpus if g.holder is None],
            node.free_cpus,
            node.free_memory,
            dict(node.other),
        )
        for node in cluster.nodes
    ]
    seats = _seat(world, free)
    if seats is not None:
        return Placement(seats=tuple(seats))
    empty = [_Room(node, list(node.gpus), node.cpus, node.memory, dict(node.other)) for node in cluster.nodes]
    if _seat(world, empty) is None:
        raise _too_large(world, cluster)
    return NoRoom(reason=_what_is_missing(world, cluster))


def _seat(world: World, rooms: Sequence[_Room]) -> list[Seat] | None:
    seats = []
    for member in members(world):
        need = world.groups[member.group].resources
        fitting = [room for room in rooms if _fits(need, room)]
        if not fitting:
            return None
        room = min(fitting, key=lambda each: (len(_matching(need, each.gpus)), each.node.name))
        mine = _matching(need, room.gpus)[: need.gpus]
        room.gpus = [gpu for gpu in room.gpus if gpu not in mine]
        room.cpus -= need.cpus.request if need.cpus else 0
        room.memory -= need.memory.request if need.memory else 0
        for name, count in need.other.items():
            room.other[name] -= count
        seats.append(Seat(worker=member.worker, node=room.node.name, gpus=tuple(gpu.id for gpu in mine)))
    return seats


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
    return [gpu for gpu in gpus if need.gpu_type.lower() in gpu.model.lower()]


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
    where = "this machine has" if len(cluster.nodes) == 1 else f"the {len(cluster.nodes)} nodes have"
    have = [gpu for node in cluster.nodes for gpu in node.gpus]
    models = sorted({gpu.model for gpu in have if gpu.model})
    for group in world.groups:
        need = group.resources
        if need.gpu_type is not None and not _matching(need, have):
            return Unplaceable(
                f"gpu_type {need.gpu_type!r}: {where} no such GPU",
                hint=f"there is {', '.join(models)}" if models else "there is no GPU at all",
            )
        for name in need.other:
            if not any(name in node.other for node in cluster.nodes):
                return Unplaceable(
                    f"resource {name!r}: {where} none of it",
                    hint="leave it out; GPUs are asked for with --gpus",
                )
    hint = "lower --gpus or --workers; `echelon top` shows the GPUs"
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
    if cpus > sum(node.cpus for node in cluster.nodes):
        return Unplaceable(
            f"{cpus:g} CPUs asked for, {where} {sum(node.cpus for node in cluster.nodes):g}",
            hint="lower --cpus or --workers",
        )
    if memory > sum(node.memory for node in cluster.nodes):
        total = sum(node.memory for node in cluster.nodes)
        return Unplaceable(
            f"{format_memory(memory)} of memory asked for, {where} {format_memory(total)}",
            hint="lower --memory or --workers",
        )
    return Unplaceable(
        "no node is large enough for one of the workers", hint="ask for less per worker, and more workers"
    )


def _what_is_missing(world: World, cluster: Cluster) -> str:
    gpus, cpus, memory = _total(world)
    have = [gpu for node in cluster.nodes for gpu in node.gpus]
    free = [gpu for gpu in have if gpu.holder is None]
    free_cpus = sum(node.free_cpus for node in cluster.nodes)
    free_memory = sum(node.free_memory for node in cluster.nodes)
    if gpus <= len(free) and cpus > free_cpus:
        return f"waiting for {cpus:g} CPUs: {free_cpus:g} not promised to other runs"
    if gpus <= len(free) and memory > free_memory:
        wanted = format_memory(memory)
        return f"waiting for {wanted} of memory: {format_memory(free_memory)} not promised to other runs"
    if gpus:  # too few, or of another model, or on different nodes
        holders = sorted({gpu.holder for gpu in have if gpu.holder is not None})
        return f"waiting for {_counted(gpus)}: {len(free)} of {len(have)} free, held by {', '.join(holders)}"
    return "waiting until one node has room for a worker"


def _counted(gpus: int) -> str:
    return f"{gpus} GPU{'s' * (gpus != 1)}"
