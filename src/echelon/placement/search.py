"""How many workers of each kind go to each node: an exact search over whole numbers, pure.

It knows neither GPUs nor nodes: a worker is a row of demands, a node a row of supplies. What is easy is
decided without a search: totals that do not suffice, and workers that fit when the nodes are filled in turn.

In the search, a node is the sequence of its *full mixes*: the combinations of workers that fit on it and
leave no room for one more. Unused room never helps, so these are the only choices. Two things keep it fast.
Bounds: for several ways to weigh the kinds, the remaining nodes must be able to hold the weight that remains,
so a wrong choice shows at once and not a thousand nodes later. Memory: a failed state (the next node, the
workers that remain) is entered once, so the order among equal nodes does not matter.

Packing is hard in principle. `Undecided` ends a search that takes too long: on random clusters of up to 1,000
nodes, loaded with up to four kinds to the very limit of what fits, in one case of a hundred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from operator import add, mul, sub

Counts = tuple[int, ...]
"""A number of workers for each kind, or a weight for each kind."""

_WORK = 100_000  # mixes and choices to look at before the search gives up: about a second


class Undecided(Exception):
    """The search took too long to say whether the workers fit."""


def pack(
    demands: Sequence[Counts], wanted: Counts, supplies: Sequence[Counts], sizes: Counts
) -> list[Counts] | None:
    """How many of the `wanted` workers of each kind every node holds; None if they do not fit.

    `demands` is what a worker of each kind takes of each resource, `supplies` what each node has of each.
    Nodes are filled in the order given, each with as much as it can hold; `sizes` says how much one worker of
    each kind counts for that. The result has one mix for each node up to the last one in use."""
    if not _totals_suffice(demands, wanted, supplies):
        return None
    easy = _fill_in_turn(demands, wanted, supplies, sizes)
    if easy is not None or len(wanted) == 1:
        return easy
    known: dict[Counts, tuple[Counts, ...]] = {}  # nodes that have the same to give hold the same
    looked_at = 0
    for supply in supplies:
        if supply not in known:
            known[supply] = tuple(islice(full_mixes(demands, supply, wanted), _WORK - looked_at))
            looked_at += len(known[supply])
            if looked_at >= _WORK:
                raise Undecided
    return _search(wanted, [known[supply] for supply in supplies], sizes)


def full_mixes(demands: Sequence[Counts], supply: Counts, wanted: Counts) -> Iterator[Counts]:
    """The combinations of workers that a node can hold and that leave no room for one more."""
    last = len(demands) - 1

    def fill(kind: int, room: Counts) -> Iterator[tuple[Counts, Counts]]:
        count = _most(demands[kind], room, wanted[kind])
        least = count if kind == last or not any(demands[kind]) else 0
        for number in range(count, least - 1, -1):
            left = _without(room, demands[kind], number)
            if kind == last:
                yield (number,), left
            else:
                yield from (((number, *others), rest) for others, rest in fill(kind + 1, left))

    for mix, rest in fill(0, supply):
        if not any(_most(demands[kind], rest, wanted[kind] - mix[kind]) for kind in range(last + 1)):
            yield mix


def _totals_suffice(demands: Sequence[Counts], wanted: Counts, supplies: Sequence[Counts]) -> bool:
    return all(
        _weigh(wanted, needed) <= sum(supply[at] for supply in supplies)
        for at, needed in enumerate(zip(*demands, strict=True))
    )


def _fill_in_turn(
    demands: Sequence[Counts], wanted: Counts, supplies: Sequence[Counts], sizes: Counts
) -> list[Counts] | None:
    """Fill one node after the other, with the largest kinds first. For one kind that misses nothing."""
    largest_first = sorted(range(len(wanted)), key=lambda kind: (-sizes[kind], kind))
    remaining = list(wanted)
    mixes: list[Counts] = []
    for supply in supplies:
        if not any(remaining):
            break
        mix, room = [0] * len(wanted), supply
        for kind in largest_first:
            mix[kind] = _most(demands[kind], room, remaining[kind])
            room = _without(room, demands[kind], mix[kind])
            remaining[kind] -= mix[kind]
        mixes.append(tuple(mix))
    return None if any(remaining) else mixes


def _search(wanted: Counts, nodes: Sequence[Sequence[Counts]], sizes: Counts) -> list[Counts] | None:
    """Choose a mix for every node so that all of `wanted` have a place; None if no choice does it."""
    bounds = [_Bound(weights, nodes) for weights in _weights(len(wanted), sizes)]
    if not all(bound.holds(wanted, 0) for bound in bounds):
        return None
    failed: set[tuple[int, Counts]] = set()
    chosen: list[Counts] = []
    remaining = wanted
    choices = [_choices(remaining, nodes, 0, sizes)]
    work = 0
    while any(remaining):
        work += 1
        choice = next(choices[-1], None)
        if choice is None:  # every choice failed: back to the node before
            if not chosen:
                return None
            choices.pop()
            failed.add((len(chosen), remaining))
            remaining = tuple(map(add, remaining, chosen.pop()))
            continue
        after, node = tuple(map(sub, remaining, choice)), len(chosen) + 1
        if (node, after) not in failed and all(bound.holds(after, node) for bound in bounds):
            chosen.append(choice)
            remaining = after
            choices.append(_choices(remaining, nodes, node, sizes))
            work += len(nodes[node]) if node < len(nodes) else 0
        if work > _WORK:
            raise Undecided
    return chosen


class _Bound:
    """A necessary condition: the nodes from a given one on can hold the weight that remains."""

    def __init__(self, weights: Counts, nodes: Sequence[Sequence[Counts]]) -> None:
        self._weights = weights
        self._capacity = [0]  # of the nodes from each position on
        heaviest: dict[Sequence[Counts], int] = {}
        for node in reversed(nodes):
            if node not in heaviest:
                heaviest[node] = max((_weigh(mix, weights) for mix in node), default=0)
            self._capacity.append(self._capacity[-1] + heaviest[node])
        self._capacity.reverse()

    def holds(self, remaining: Counts, node: int) -> bool:
        """Whether the nodes from this position on could hold what remains."""
        return _weigh(remaining, self._weights) <= self._capacity[node]


def _weights(kinds: int, sizes: Counts) -> list[Counts]:
    """Ways to weigh the kinds: each alone, which decides where only one remains, and small combinations."""
    highest = 3 if kinds <= 3 else 1
    return [*(each for each in product(range(highest + 1), repeat=kinds) if any(each)), sizes]


def _choices(
    remaining: Counts, nodes: Sequence[Sequence[Counts]], node: int, sizes: Counts
) -> Iterator[Counts]:
    """What can go to a node, the fullest first."""
    if node >= len(nodes):
        return iter(())
    fitting = {tuple(map(min, mix, remaining)) for mix in nodes[node]}
    return iter(sorted(fitting, key=lambda mix: (_weigh(mix, sizes), mix), reverse=True))


def _weigh(counts: Counts, weights: Counts) -> int:
    return sum(map(mul, counts, weights))


def _most(demand: Counts, room: Counts, wanted: int) -> int:
    """How many workers of a kind fit."""
    return max(0, min([wanted, *(have // need for have, need in zip(room, demand, strict=True) if need)]))


def _without(room: Counts, demand: Counts, number: int) -> Counts:
    return tuple(have - number * need for have, need in zip(room, demand, strict=True))
