"""How many workers of each kind go to each node: an exact search over whole numbers, pure.

It knows neither GPUs nor nodes. A node is the sequence of its *full mixes*: the combinations of workers that
fit on it and leave no room for one more. Unused room never helps, so these are the only choices.

Three things keep it fast. Bounds: for several ways to weigh the kinds, the remaining nodes must be able to
hold the weight that remains, so a wrong choice shows at once and not a thousand nodes later. Memory: a failed
state (the next node, the workers that remain) is entered once, so the order among equal nodes does not
matter. Equal workers have one full mix per node, so there is nothing to choose.

Packing is hard in principle. `Undecided` ends the search where these three do not settle it: on random
clusters of up to 1,000 nodes, loaded with up to four kinds to the very limit of what fits, in one case of a
hundred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from operator import add, mul, sub

Counts = tuple[int, ...]
"""A number of workers for each kind, or a weight for each kind."""

_STEPS = 20_000  # about a second


class Undecided(Exception):
    """The search took too many steps to say whether the workers fit."""


def distribute(wanted: Counts, nodes: Sequence[Sequence[Counts]], sizes: Counts) -> list[Counts] | None:
    """Choose a mix for every node so that all of `wanted` have a place; None if no choice does it.

    Nodes are filled in the order given, each with as much as it can hold; `sizes` says how much one worker of
    each kind counts for that. The result has one mix for each node up to the last one in use."""
    bounds = [_Bound(weights, nodes) for weights in _weights(len(wanted), sizes)]
    if not all(bound.holds(wanted, 0) for bound in bounds):
        return None
    failed: set[tuple[int, Counts]] = set()
    chosen: list[Counts] = []
    remaining = wanted
    choices = [_choices(remaining, nodes, 0, sizes)]
    for _ in range(_STEPS + len(nodes)):
        if not any(remaining):
            return chosen
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
    raise Undecided


def full_mixes(demands: Sequence[Counts], supply: Counts, wanted: Counts) -> tuple[Counts, ...]:
    """The combinations of workers that a node can hold and that leave no room for one more.

    `demands` is what a worker of each kind takes of each resource, `supply` what the node has of each."""
    last = len(demands) - 1

    def most(kind: int, room: Counts) -> int:
        shares = (have // need for have, need in zip(room, demands[kind], strict=True) if need)
        return max(0, min([wanted[kind], *shares]))

    def without(room: Counts, kind: int, number: int) -> Counts:
        return tuple(have - number * need for have, need in zip(room, demands[kind], strict=True))

    def fill(kind: int, room: Counts) -> Iterator[tuple[Counts, Counts]]:
        count = most(kind, room)
        least = count if kind == last or not any(demands[kind]) else 0
        for number in range(count, least - 1, -1):
            left = without(room, kind, number)
            if kind == last:
                yield (number,), left
            else:
                yield from (((number, *others), rest) for others, rest in fill(kind + 1, left))

    return tuple(
        mix
        for mix, rest in fill(0, supply)
        if all(mix[kind] == wanted[kind] or not most(kind, rest) for kind in range(last + 1))
    )


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
