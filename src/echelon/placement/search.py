"""How many workers of each kind go to each node: an exact search over whole numbers, pure.

It knows neither GPUs nor nodes: a worker is a row of demands, a node a row of supplies. What is easy is
decided without a search: totals that do not suffice, and workers that fit when the nodes are filled in turn.

Of all ways, one over the fewest nodes is taken (`_over_fewest`), if the search for it does not take too long;
among those, one on the first nodes in the order given.

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
_WORK_FOR_FEWER = 10_000  # the same for a way over fewer nodes, once one is known


class Undecided(Exception):
    """The search took too long to say whether the workers fit."""


def pack(
    demands: Sequence[Counts], wanted: Counts, supplies: Sequence[Counts], sizes: Counts
) -> list[Counts] | None:
    """How many of the `wanted` workers of each kind every node holds; None if they do not fit.

    `demands` is what a worker of each kind takes of each resource, `supplies` what each node has of each.
    The nodes in use are the fewest; `sizes` says how much one worker of each kind counts for filling a node.
    The result has one mix for each node up to the last one in use."""
    if not totals_suffice(demands, wanted, supplies):
        return None
    easy = _fill_in_turn(demands, wanted, supplies, sizes)
    if len(wanted) == 1:
        return easy
    known: dict[Counts, tuple[Counts, ...]] = {}  # nodes that have the same to give hold the same
    looked_at = 0
    for supply in supplies:
        if supply not in known:
            known[supply] = tuple(islice(full_mixes(demands, supply, wanted), _WORK - looked_at))
            looked_at += len(known[supply])
            if looked_at >= _WORK:
                if easy is not None:
                    return easy
                raise Undecided
    nodes = [known[supply] for supply in supplies]
    mixes = _search(wanted, nodes, sizes) if easy is None else easy
    return None if mixes is None else _over_fewest(wanted, nodes, supplies, sizes, mixes)


def _over_fewest(
    wanted: Counts,
    nodes: Sequence[Sequence[Counts]],
    supplies: Sequence[Counts],
    sizes: Counts,
    known: list[Counts],
) -> list[Counts]:
    """A way that uses fewer nodes than the one that is known, if there is one; else that."""
    alike: dict[Counts, list[int]] = {}
    for at, supply in enumerate(supplies):
        alike.setdefault(supply, []).append(at)
    classes = [(nodes[places[0]], len(places)) for places in alike.values()]
    weights = _weights(len(wanted), sizes)
    budget = _WORK_FOR_FEWER
    most = sum(1 for mix in known if any(mix))
    for count in range(_fewest_possible(wanted, classes, weights), most):
        search = _FewNodes(classes, weights, sizes, budget)
        chosen = search.run(wanted, count)
        if chosen is not None:
            free = [iter(places) for places in alike.values()]
            taken = {next(free[kind]): mix for kind, mix in chosen}
            none = (0,) * len(wanted)
            return [taken.get(at, none) for at in range(max(taken) + 1)]
        budget = search.budget
        if budget <= 0:
            break
    return known


def _fewest_possible(
    wanted: Counts, classes: Sequence[tuple[Sequence[Counts], int]], weights: Sequence[Counts]
) -> int:
    """How many nodes are needed by every way to weigh the kinds, were the heaviest mixes all that counts."""
    needed = 1
    for each in weights:
        heaviest = sorted(
            ((max((_weigh(mix, each) for mix in mixes), default=0), count) for mixes, count in classes),
            reverse=True,
        )
        left, used = _weigh(wanted, each), 0
        for weight, count in heaviest:
            if left <= 0 or not weight:
                break
            nodes = min(count, -(-left // weight))
            used, left = used + nodes, left - nodes * weight
        needed = max(needed, used)
    return needed


_Way = tuple[tuple[int, Counts], "_Way | None"]  # a class and a mix of it, and the way before


def _steps(way: _Way | None) -> Iterator[tuple[int, Counts]]:
    while way is not None:
        step, way = way
        yield step


class _FewNodes:
    """A search for a way over so many nodes: class by class of equal nodes, each with one of its full mixes.

    What failed is not tried again; a class whose heaviest mixes cannot hold what remains is the end of a way.
    """

    def __init__(
        self,
        classes: Sequence[tuple[Sequence[Counts], int]],
        weights: Sequence[Counts],
        sizes: Counts,
        budget: int,
    ) -> None:
        self.budget = budget  # mixes that may still be looked at
        # Every mix of every class, the heaviest first; `last` is where its class ends.
        self._options: list[tuple[int, Counts, int]] = []
        self._count = [count for _, count in classes]
        for kind, (mixes, _) in enumerate(classes):
            ordered = sorted(mixes, key=lambda mix: (_weigh(mix, sizes), mix), reverse=True)
            end = len(self._options) + len(ordered)
            self._options += [(kind, mix, end) for mix in ordered]
        self._weights = weights
        self._heaviest = [[0] * (len(self._options) + 1) for _ in weights]
        for row, each in zip(self._heaviest, weights, strict=True):
            for at in range(len(self._options) - 1, -1, -1):
                row[at] = max(row[at + 1], _weigh(self._options[at][1], each))
        self._failed: set[tuple[int, int, int, Counts]] = set()

    def run(self, wanted: Counts, nodes: int) -> list[tuple[int, Counts]] | None:
        """The class and the mix of each node in use; None if there is no way, or the search took too long."""
        # A stack, since ways are long: the state, and the way to it, from its last node to its first.
        stack: list[tuple[int, int, int, Counts, _Way | None]] = [(0, 0, nodes, wanted, None)]
        while stack and self.budget > 0:
            at, used, left, remaining, way = stack.pop()
            if not any(remaining):
                return list(_steps(way))
            state = (at, used, left, remaining)
            self.budget -= 1
            if not left or at == len(self._options) or state in self._failed or not self._may(state):
                continue
            self._failed.add(state)
            kind, mix, end = self._options[at]
            following = at + 1
            stack.append((following, used if following < end else 0, left, remaining, way))
            if used < self._count[kind]:
                taken = tuple(map(min, mix, remaining))
                after = tuple(map(sub, remaining, taken))
                stack.append((at, used + 1, left - 1, after, ((kind, taken), way)))
        return None

    def _may(self, state: tuple[int, int, int, Counts]) -> bool:
        at, _, left, remaining = state
        return all(
            _weigh(remaining, each) <= left * row[at]
            for each, row in zip(self._weights, self._heaviest, strict=True)
        )


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


def totals_suffice(demands: Sequence[Counts], wanted: Counts, supplies: Sequence[Counts]) -> bool:
    """Whether the nodes together have enough of each resource: a necessary condition."""
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
