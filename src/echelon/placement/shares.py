"""How much each node gives to a run, chosen exactly: GPUs to one that says only how many it needs, which has
one worker per node; or equal workers of a given size (`Wish.unit`), of which a node may hold several.

All of one model. Of all ways the first is taken in this order: the narrowest part of the network; the fewest
nodes; equal shares, unless others are allowed; the least added fragmentation; for unequal shares the largest
share, and with `largest-first` that before fragmentation; the part of the network with the fewest free GPUs,
then its name; the nodes with the fewest free GPUs, then their names.

Nodes count by class: all that matters of a node is how many GPUs are free and how many of them a worker could
have. The search is over classes, so that its cost does not grow with the number of nodes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

from echelon.model.open_shape import Shares
from echelon.values import frozen

# How many GPUs runs ask for, where nothing else is known: of a thousand jobs of a large cluster (Philly).
USUAL_SIZES: Mapping[int, int] = {1: 932, 2: 22, 4: 23, 8: 20, 16: 3}


@frozen
class Site:
    """A node as the choice sees it. Of its `free` GPUs one worker could have `usable`, by CPUs and memory; of
    workers of a given size it could hold `usable`.

    `domains` are the parts of the network it belongs to, the widest first; an empty name is unknown."""

    name: str
    free: int
    usable: int
    model: str = ""
    domains: tuple[str, ...] = ()


@frozen
class Wish:
    """How many GPUs, at least and at most, and whether shares may differ; or how many workers, each with
    `unit` GPUs.
    """

    least: int
    most: int
    shares: Shares = "equal"
    unit: int = 1


@frozen
class Chosen:
    """The nodes with their shares, the largest first; the part of the network that holds them all.

    `span` counts the parts from the narrowest: 0 is one node. `added` is the fragmentation that it adds, in
    GPUs times `weight` of the sizes it was computed with."""

    shares: tuple[tuple[str, int], ...]
    span: int
    domain: tuple[str, ...]
    model: str
    added: int


@dataclass(slots=True)
class Part:
    """One part of the network, for one model: its nodes by class (usable, free), names in order."""

    domain: tuple[str, ...]
    model: str
    free: int = 0
    classes: dict[tuple[int, int], list[str]] = field(default_factory=dict)


@frozen
class Index:
    """All parts by span, the narrowest first; the last is the whole cluster. Made once per snapshot."""

    levels: tuple[tuple[Part, ...], ...]


Given = tuple[tuple[str, int], ...]  # nodes with what each gives
Cost = Callable[
    [int, int], int
]  # the fragmentation that is added when of so many free GPUs so many are taken


def index(sites: Iterable[Site]) -> Index:
    """Sort nodes into the parts of the network and, in each, into classes."""
    nodes = sorted((site for site in sites if site.usable > 0), key=lambda site: site.name)
    depth = max((len(site.domains) for site in nodes), default=0)
    levels = []
    for length in range(depth, -1, -1):
        parts: dict[tuple[str, tuple[str, ...]], Part] = {}
        for site in nodes:
            domain = site.domains[:length]
            if len(domain) < length or "" in domain[-1:]:
                continue  # where this node is, is not known so exactly
            key = (site.model, domain)
            part = parts.get(key) or parts.setdefault(key, Part(domain, site.model))
            part.free += site.free
            part.classes.setdefault((site.usable, site.free), []).append(site.name)
        levels.append(tuple(parts.values()))
    return Index(levels=tuple(levels))


def choose(there: Index, wish: Wish, sizes: Mapping[int, int] = USUAL_SIZES) -> Chosen | None:
    """The best shape; None if there is none. Of a range, the largest number that has the narrowest span."""
    number = _largest_with_narrowest_span(there, wish)
    return None if number is None else _choose(there, number, wish, _fragmentation(sizes, wish.unit))


def sizes_that_fit(there: Index, most: int, shares: Shares) -> list[int]:
    """How many GPUs can be had with such shares, up to a number."""
    counts = [_at_least(part) for part in there.levels[-1]]
    return [
        number for number in range(1, most + 1) if any(_node_count(each, number, shares) for each in counts)
    ]


def _largest_with_narrowest_span(there: Index, wish: Wish) -> int | None:
    """In closed form: the numbers of a range are not tried one by one."""
    on_one = max((usable for part in there.levels[-1] for usable, _ in part.classes), default=0)
    if on_one >= wish.least:
        return min(on_one, wish.most)
    for parts in there.levels:
        number = max((_largest(_at_least(part), wish) for part in parts), default=0)
        if number >= wish.least:
            return number
    return None


def _at_least(part: Part) -> list[int]:
    """How many nodes of a part could give at least so many, by that number."""
    most = max((usable for usable, _ in part.classes), default=0)
    counts = [0] * (most + 2)
    for (usable, _), names in part.classes.items():
        counts[usable] += len(names)
    for usable in range(most, -1, -1):
        counts[usable] += counts[usable + 1]
    return counts


def _largest(at_least: Sequence[int], wish: Wish) -> int:
    """The largest number, up to the most that is wished for, that the nodes of a part could give."""
    if wish.shares != "equal":
        return min(wish.most, sum(at_least[1:]))
    return max(
        (min(have, wish.most // share) * share for share, have in enumerate(at_least) if share), default=0
    )


def _choose(there: Index, number: int, wish: Wish, cost: Cost) -> Chosen | None:
    one = _on_one_node(there.levels[-1], number, cost)
    if one is not None:
        return one
    for span, parts in enumerate(there.levels, start=1):
        fitting = [
            (count, part) for part in parts if (count := _node_count(_at_least(part), number, wish.shares))
        ]
        fewest = min((count for count, _ in fitting), default=0)
        ways = [
            (_pick(part, number, count, wish.shares, cost), part)
            for count, part in fitting
            if count == fewest
        ]
        if ways:
            (_, added, given), part = min(
                ways, key=lambda way: (way[0][0], way[1].free, way[1].domain, way[1].model)
            )
            return Chosen(shares=given, span=span, domain=part.domain, model=part.model, added=added)
    return None


def _on_one_node(parts: Sequence[Part], number: int, cost: Cost) -> Chosen | None:
    """The node that is broken up least, then the fullest, then the first."""
    ways = [
        (cost(free, number), free, part.model, usable, names[0])
        for part in parts
        for (usable, free), names in part.classes.items()
        if usable >= number
    ]
    if not ways:
        return None
    added, _, model, _, name = min(ways)
    return Chosen(shares=((name, number),), span=0, domain=(), model=model, added=added)


def _node_count(at_least: Sequence[int], number: int, shares: Shares) -> int | None:
    """How many nodes are needed at least; None if all of them do not suffice."""
    if shares != "equal":
        left, used = number, 0
        for usable in range(len(at_least) - 2, 0, -1):
            need = min(at_least[usable] - at_least[usable + 1], -(-left // usable))
            used, left = used + need, left - need * usable
            if left <= 0:
                return used
        return None
    for share in range(len(at_least) - 2, 0, -1):
        if not number % share and at_least[share] >= number // share:
            return number // share
    return None


def _pick(
    part: Part, number: int, count: int, shares: Shares, cost: Cost
) -> tuple[tuple[int, ...], int, Given]:
    """The nodes of a part that give so many: the value of that, less is better; what it adds; who gives."""
    if shares == "equal":
        taken = _equal(part, number // count, count, cost)
    elif shares == "largest-first":
        taken = _largest_first(part, number)
    else:
        taken = _any(part, number, count, cost)
    names = {key: iter(there) for key, there in part.classes.items()}
    taken.sort(key=lambda each: (-each[1], each[0]))
    given = tuple(sorted(((next(names[key]), share) for key, share in taken), key=lambda x: (-x[1], x[0])))
    added = sum(cost(free, share) for (_, free), share in taken)
    if shares == "equal":
        return (added,), added, given
    largest = tuple(-share for _, share in taken)
    return ((added, *largest) if shares == "any" else (*largest, added)), added, given


Class = tuple[int, int]  # usable and free GPUs of a node
Taken = list[tuple[Class, int]]  # one entry for each node: its class, and its share


def _equal(part: Part, share: int, count: int, cost: Cost) -> Taken:
    fitting = sorted((cost(free, share), free, usable) for usable, free in part.classes if usable >= share)
    nodes = chain.from_iterable(
        repeat((usable, free), len(part.classes[usable, free])) for _, free, usable in fitting
    )
    return [(each, share) for each, _ in zip(nodes, range(count), strict=False)]


def _largest_first(part: Part, number: int) -> Taken:
    taken: Taken = []
    for usable, free in sorted(part.classes, key=lambda each: (-each[0], each[1])):
        for _ in part.classes[usable, free]:
            if number <= 0:
                return taken
            taken.append(((usable, free), min(usable, number)))
            number -= usable
    return taken


@dataclass(frozen=True, slots=True)
class _Way:
    """Some nodes with their shares: what they add, their rank, their GPUs; and the way before the last."""

    value: tuple[int, int, int, int]
    before: _Way | None = None
    last: tuple[Class, int] | None = None


def _any(part: Part, number: int, count: int, cost: Cost) -> Taken:
    """The shares that add the least fragmentation, over so many nodes, the fewest that suffice.

    A dynamic programme over classes, the largest first. Because no fewer nodes would do, the largest nodes
    together have less to spare than one of them: each way is compared with taking all of the largest, node
    by node, and what it takes less must add up to what they have to spare. So there are few states."""
    classes = sorted(part.classes, reverse=True)
    largest = [usable for usable, free in classes for _ in part.classes[usable, free]][:count]
    spare = sum(largest) - number
    base = count + 1
    # By how many nodes are taken: by what they take less than the largest, the best way.
    states: list[dict[int, _Way]] = [{} for _ in range(count + 1)]
    states[0][0] = _Way((0, 0, 0, 0))
    for usable, free in classes:
        most = len(part.classes[usable, free])
        within = [{(less, 0): way for less, way in ways.items()} for ways in states]
        for share in range(usable, 0, -1):
            step = (cost(free, share), -(base**share), free, usable)
            for nodes, large in enumerate(largest):
                for (less, used), way in within[nodes].items():
                    then = (less + large - share, used + 1)
                    if then[0] > spare or used == most:
                        continue
                    value = way.value
                    total = (value[0] + step[0], value[1] + step[1], value[2] + step[2], value[3] + step[3])
                    known = within[nodes + 1].get(then)
                    if known is None or total < known.value:
                        within[nodes + 1][then] = _Way(total, way, ((usable, free), share))
        for nodes, ways in enumerate(within):
            for (less, _), way in ways.items():
                if less not in states[nodes] or way.value < states[nodes][less].value:
                    states[nodes][less] = way
    taken: Taken = []
    last: _Way | None = states[count][spare]
    while last is not None and last.last is not None:
        taken.append(last.last)
        last = last.before
    return taken


def _fragmentation(sizes: Mapping[int, int], unit: int) -> Cost:
    """F(free - share) - F(free), where F(f) is f times how many runs need more than f GPUs; a share is of so
    many GPUs each.
    """
    known: dict[int, int] = {}

    def of(free: int) -> int:
        if free not in known:
            known[free] = free * sum(weight for size, weight in sizes.items() if size > free)
        return known[free]

    return lambda free, share: of(free - share * unit) - of(free)
