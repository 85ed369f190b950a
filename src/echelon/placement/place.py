"""A seat for every worker of a world in a snapshot of the cluster, all or none.

Exact: if there is a way to seat all workers, it is found. Of all ways the first is taken in the order that
`shares.py` states: GPUs of one model, if that can be; the narrowest part of the network, one node if that can
be; the fewest nodes; the least added fragmentation. For equal workers `shares.py` decides how many go to each
node, for unlike ones `search.py`, part by part of the network, and there nodes with the fewest free GPUs come
first. This module puts workers and nodes into their numbers, and their answer into seats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import combinations, compress, repeat

from echelon.model.engine.cluster import Cluster, Gpu, Node, matches_type
from echelon.model.open_shape import Shares
from echelon.model.plan import Placement, Seat
from echelon.model.resources import Amount, Resources
from echelon.model.world import Member, World, members
from echelon.placement.explain import all_nodes, too_large, what_is_missing
from echelon.placement.search import Counts, Undecided, pack
from echelon.placement.shares import Chosen, Site, Wish, choose, index
from echelon.values import frozen

DUST = 1e-6  # of a core, or a byte: what rounding may leave of sums of fractions
_MANY = 1_000_000  # workers that one node holds, where they ask for nothing


@frozen
class NoRoom:
    """The world would fit, but not now; `reason` says what it waits for."""

    reason: str


@frozen
class _Room:
    """What a node has to give."""

    node: str
    gpus: tuple[Gpu, ...]
    cpus: float
    memory: float
    other: Mapping[str, int]
    domains: tuple[str, ...] = ()


Rooms = Sequence[tuple["_Room", Counts]]  # nodes in use, each with how many workers of each kind it gets


def place(world: World, cluster: Cluster, nodes: Sequence[str] = ()) -> Placement | NoRoom:
    """Seat every worker on what is free; NoRoom if it must wait; Unplaceable if even an empty cluster could
    not hold it. A cluster that may not be read has room for all: seats without a node.

    `nodes` has the node that each worker was chosen for, "" for one that may sit anywhere."""
    if not cluster.known:
        return Placement(seats=tuple(Seat(worker=member.worker, node="") for member in members(world)))
    try:
        chosen = set(nodes) if nodes and "" not in nodes else None
        rooms = [_free(node) for node in cluster.nodes if chosen is None or node.name in chosen]
        seats = _seat(world, rooms) if not nodes else _seat_at(world, rooms, nodes)
        if seats is not None:
            return Placement(seats=seats)
        if _seat(world, [_empty(node) for node in all_nodes(cluster)]) is None:
            raise too_large(world, cluster)
    except Undecided:
        pass  # a refusal might be wrong: the run waits, and every change in the cluster is a new try
    return NoRoom(reason=what_is_missing(world, cluster))


def _free(node: Node) -> _Room:
    return _Room(
        node=node.name,
        gpus=tuple(gpu for gpu in node.gpus if gpu.holder is None),
        cpus=node.free_cpus,
        memory=node.free_memory,
        other=node.other if node.free_other is None else node.free_other,
        domains=node.domains,
    )


def _empty(node: Node) -> _Room:
    return _Room(
        node=node.name,
        gpus=node.gpus,
        cpus=node.cpus,
        memory=node.memory,
        other=node.other,
        domains=node.domains,
    )


def _seat(world: World, rooms: Sequence[_Room]) -> tuple[Seat, ...] | None:
    asked = [group.resources for group in world.groups]
    kinds = [need for at, need in enumerate(asked) if need not in asked[:at]]
    kind_of = [kinds.index(need) for need in asked]
    wanted = [0] * len(kinds)
    for kind, group in zip(kind_of, world.groups, strict=True):
        wanted[kind] += group.workers
    for choice in _by_model(kinds, rooms):
        if len(kinds) == 1:
            used = _equal_workers(kinds[0], wanted[0], choice)
        else:
            used = _unlike_workers(kinds, tuple(wanted), choice)
        if used is not None:
            return _seats(world, kind_of, used)
    return None


def _by_model(kinds: Sequence[Resources], rooms: Sequence[_Room]) -> Iterator[Mapping[str, Sequence[_Room]]]:
    """The nodes to choose from, by model of GPU, with the GPUs of that model: a run has one model if it can.
    Then all nodes with all of their GPUs. Workers without GPUs leave nodes that have some free to others.
    """
    types = {need.gpu_type for need in kinds if need.gpus}
    if not types:
        yield {"": [room for room in rooms if not room.gpus]}
        yield {"": rooms}
        return
    models = {gpu.model for room in rooms for gpu in room.gpus}
    fitting = sorted(model for model in models if all(_is_of(each, model) for each in types))
    if len(models) > 1:
        yield {model: [_only(model, room) for room in rooms] for model in fitting}
    yield {"": rooms}


def _only(model: str, room: _Room) -> _Room:
    mine = tuple(gpu for gpu in room.gpus if gpu.model == model)
    return room if len(mine) == len(room.gpus) else replace(room, gpus=mine)


def _equal_workers(need: Resources, number: int, choice: Mapping[str, Sequence[_Room]]) -> Rooms | None:
    chosen = _choose(need, number, number, choice)
    if chosen is None:
        return None
    room_of = {room.node: room for room in choice[chosen.model]}
    return [(room_of[node], (workers,)) for node, workers in chosen.shares]


def _choose(need: Resources, least: int, most: int, choice: Mapping[str, Sequence[_Room]]) -> Chosen | None:
    sites = (
        Site(
            name=room.node,
            free=len(room.gpus),
            usable=min(most, holds),
            model=model,
            domains=room.domains,
        )
        for model, rooms in choice.items()
        for room in rooms
        if len(room.gpus) >= need.gpus and (holds := _holds(need, room))
    )
    # Of workers without GPUs a node may hold hundreds, and none is better than another that holds as many.
    shares: Shares = "any" if need.gpus else "largest-first"
    return choose(index(sites), Wish(least=least, most=most, shares=shares, unit=need.gpus))


def best_of_range(
    sizes: Iterable[tuple[Resources, int, int]], cluster: Cluster
) -> tuple[Resources, int] | None:
    """Of equal workers, given as what one needs and how many there are at least and at most: those that have
    the narrowest span now; of several, the first that is given, and as many as have that span. Else the same
    in an empty cluster, which is worth waiting for; None if even that could not hold them.
    """
    asked = list(sizes)
    best = _best_of_range(asked, map(_free, cluster.nodes))
    return best if best is not None else _best_of_range(asked, map(_empty, all_nodes(cluster)))


def _best_of_range(
    sizes: Sequence[tuple[Resources, int, int]], nodes: Iterable[_Room]
) -> tuple[Resources, int] | None:
    """Sizes that one node may hold are tried first, then the others; what cannot be better is not tried."""
    smallest = min(need.gpus for need, _, _ in sizes)
    rooms = [room for room in nodes if len(room.gpus) >= smallest]
    largest = max((len(room.gpus) for room in rooms), default=0)
    ordered = sorted(
        (need.gpus * least > largest, at) for at, (need, least, _) in enumerate(sizes) if need.gpus <= largest
    )
    best: tuple[tuple[bool, int, int], tuple[Resources, int]] | None = None
    for narrowest, at in ordered:
        if best is not None and best[0] < (False, narrowest, at):
            break
        need, least, most = sizes[at]
        for mixed, choice in enumerate(_by_model([need], rooms)):
            chosen = _choose(need, least, most, choice)
            if chosen is not None:
                value = (mixed > 0, chosen.span, at)
                if best is None or value < best[0]:
                    best = value, (need, sum(workers for _, workers in chosen.shares))
                break
    return None if best is None else best[1]


def _holds(need: Resources, room: _Room) -> int:
    """How many such workers fit on a node."""
    most = _MANY
    if need.gpus:
        usable = len(room.gpus) if need.gpu_type is None else _count({need.gpu_type}, room.gpus)
        most = usable // need.gpus
    if most and need.cpus is not None:
        each = math.ceil((need.cpus.request - DUST) * 1000)
        most = min(most, math.floor((room.cpus + DUST) * 1000) // each)
    if most and need.memory is not None:
        most = min(most, math.floor(room.memory) // math.ceil(need.memory.request))
    for name, count in need.other.items():
        most = min(most, room.other.get(name, 0) // count) if count else most
    return max(0, most)


def _unlike_workers(
    kinds: Sequence[Resources], wanted: Counts, choice: Mapping[str, Sequence[_Room]]
) -> Rooms | None:
    """The narrowest part of the network that holds all; of several parts, the one with the fewest nodes in
    use, then the fewest free GPUs.
    """
    scale = _Scale(kinds)
    sizes = tuple(need.gpus for need in kinds)
    depth = max((len(room.domains) for rooms in choice.values() for room in rooms), default=0)
    undecided = False
    for length in range(depth + 1, -1, -1):  # the narrowest part is a single node
        best: tuple[tuple[int, int, tuple[str, ...], str], Rooms] | None = None
        known: dict[tuple[Counts, ...], list[Counts] | None] = {}
        for model, domain, there in _parts(choice, length, depth):
            rooms = sorted(there, key=lambda room: (scale.usable(room), len(room.gpus), room.node))
            supplies = tuple(scale.supply(room) for room in rooms)
            try:
                if supplies not in known:
                    known[supplies] = pack(scale.demands, wanted, supplies, sizes)
            except Undecided:
                undecided, known[supplies] = True, None
            mixes = known[supplies]
            if mixes is not None:
                used = [(room, mix) for room, mix in zip(rooms, mixes, strict=False) if any(mix)]
                value = (len(used), sum(len(room.gpus) for room in rooms), domain, model)
                if best is None or value < best[0]:
                    best = value, used
        if best is not None:
            return best[1]
    if undecided:
        raise Undecided
    return None


def _parts(
    choice: Mapping[str, Sequence[_Room]], length: int, depth: int
) -> Iterator[tuple[str, tuple[str, ...], Sequence[_Room]]]:
    """The parts of the network whose names have so many pieces, by model; one piece more is a single node."""
    for model, rooms in choice.items():
        parts: dict[tuple[str, ...], list[_Room]] = {}
        for room in rooms:
            domain = (*room.domains, room.node) if length > depth else room.domains[:length]
            if length <= depth and (len(domain) < length or "" in domain[-1:]):
                continue  # where this node is, is not known so exactly
            parts.setdefault(domain, []).append(room)
        for domain, there in parts.items():
            yield model, domain, there


def _seat_at(world: World, rooms: Sequence[_Room], nodes: Sequence[str]) -> tuple[Seat, ...] | None:
    """Seats on the nodes that were chosen; the workers of other roles sit where these leave room."""
    left = {room.node: room for room in rooms}
    seats, others = [], []
    for member, node in zip(members(world), nodes, strict=True):
        if not node:
            others.append(member)
            continue
        taken = None if node not in left else _take(left[node], world.groups[member.group].resources)
        if taken is None:
            return None
        gpus, left[node] = taken
        seats.append(Seat(worker=member.worker, node=node, gpus=gpus))
    if others:
        serving = World(groups=tuple(world.groups[number] for number in sorted({m.group for m in others})))
        found = _seat(serving, list(left.values()))
        if found is None:
            return None
        seats += [replace(seat, worker=other.worker) for seat, other in zip(found, others, strict=True)]
    return tuple(sorted(seats, key=lambda seat: seat.worker))


def _take(room: _Room, need: Resources) -> tuple[tuple[str, ...], _Room] | None:
    """The GPUs that a worker gets of a node, and what is left of it; None where it has no room."""
    fitting = [gpu for gpu in room.gpus if _can_use(need.gpu_type, gpu)][: need.gpus]
    cpus, memory = room.cpus - _request(need.cpus), room.memory - _request(need.memory)
    other = {name: count - need.other.get(name, 0) for name, count in room.other.items()}
    missing = need.other.keys() - room.other.keys()
    if len(fitting) < need.gpus or min(cpus, memory, *other.values()) < -DUST or missing:
        return None
    rest = tuple(gpu for gpu in room.gpus if gpu not in fitting)
    left = replace(room, gpus=rest, cpus=cpus, memory=memory, other=other)
    return tuple(gpu.id for gpu in fitting), left


def _seats(world: World, kind_of: Sequence[int], used: Rooms) -> tuple[Seat, ...]:
    """Who sits where, once the numbers are known: workers in order, to nodes in order."""

    def openings(kind: int) -> Iterator[_Room]:
        for room, mix in used:
            yield from repeat(room, mix[kind])

    next_room = [openings(kind) for kind in range(max(kind_of) + 1)]
    here: dict[str, list[Member]] = {}
    room_of = {}
    for member in members(world):
        room = next(next_room[kind_of[member.group]])
        room_of[room.node] = room
        here.setdefault(room.node, []).append(member)
    seats = {}
    for name, sitting in here.items():
        needs = [world.groups[member.group].resources for member in sitting]
        for member, gpus in zip(sitting, hand_out(needs, room_of[name].gpus), strict=True):
            seats[member.worker] = Seat(worker=member.worker, node=name, gpus=tuple(gpu.id for gpu in gpus))
    return tuple(seats[worker] for worker in sorted(seats))


class _Scale:
    """Workers and nodes as rows of whole numbers: thousandths of cores, bytes, other resources, GPUs.

    GPUs take one number for every set of types that is asked for: all workers of those types together cannot
    need more than the GPUs that any of them could use. By Hall's theorem that is enough: where it holds for
    every set, the GPUs of a node can be handed out. What no worker asks for has no number, so that nodes
    which differ only in that are equal."""

    def __init__(self, kinds: Sequence[Resources]) -> None:
        self._other = sorted({name for need in kinds for name in need.other})
        self._types = {need.gpu_type for need in kinds if need.gpus}
        self._sets = list(_sets(self._types))
        rows = [self._row_of_worker(need) for need in kinds]
        self._asked = [any(column) for column in zip(*rows, strict=True)]
        self.demands = [tuple(compress(row, self._asked)) for row in rows]

    def supply(self, room: _Room) -> Counts:
        """What a node has of each resource."""
        row = (
            math.floor((room.cpus + DUST) * 1000),
            math.floor(room.memory),
            *(room.other.get(name, 0) for name in self._other),
            *(_count(types, room.gpus) for types in self._sets),
        )
        return tuple(compress(row, self._asked))

    def usable(self, room: _Room) -> int:
        """The free GPUs that any of the workers could use; all of them, where no worker needs one."""
        return _count(self._types, room.gpus) if self._types else len(room.gpus)

    def _row_of_worker(self, need: Resources) -> Counts:
        return (
            math.ceil((_request(need.cpus) - DUST) * 1000),
            math.ceil(_request(need.memory)),
            *(need.other.get(name, 0) for name in self._other),
            *(need.gpus if need.gpu_type in types else 0 for types in self._sets),
        )


def hand_out(needs: Sequence[Resources], gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """Give each worker on a node the first GPUs that it can use and that the later workers can spare.

    The GPUs must be enough for all."""
    free = list(gpus)
    handed: list[list[Gpu]] = []
    for number, need in enumerate(needs):
        mine: list[Gpu] = []
        while len(mine) < need.gpus:
            still = [replace(need, gpus=need.gpus - len(mine) - 1), *needs[number + 1 :]]
            mine.append(
                next(
                    gpu
                    for at, gpu in enumerate(free)
                    if _can_use(need.gpu_type, gpu) and _suffice(free[:at] + free[at + 1 :], still)
                )
            )
            free.remove(mine[-1])
        handed.append(mine)
    return handed


def _suffice(gpus: Sequence[Gpu], needs: Sequence[Resources]) -> bool:
    return all(
        sum(need.gpus for need in needs if need.gpu_type in types) <= _count(types, gpus)
        for types in _sets({need.gpu_type for need in needs if need.gpus})
    )


def _sets(types: AbstractSet[str | None]) -> Iterator[frozenset[str | None]]:
    """Every set of types but the empty one, in an order that is always the same."""
    ordered = sorted(types, key=lambda each: each or "")
    for size in range(1, len(ordered) + 1):
        yield from map(frozenset, combinations(ordered, size))


def _count(types: AbstractSet[str | None], gpus: Sequence[Gpu]) -> int:
    """How many GPUs at least one of the types means."""
    if None in types:
        return len(gpus)
    return sum(any(_can_use(each, gpu) for each in types) for gpu in gpus)


def _can_use(gpu_type: str | None, gpu: Gpu) -> bool:
    return _is_of(gpu_type, gpu.model)


def _is_of(gpu_type: str | None, model: str) -> bool:
    return gpu_type is None or matches_type(gpu_type, model)


def _request(amount: Amount | None) -> float:
    return amount.request if amount is not None else 0.0
