"""Ours, and policies to compare it with: what a person does by hand, the scheduler, and Kueue.

Kueue's are those of its topology-aware scheduling for a Job of pods with one GPU each: a host that holds all,
the fullest; where that is preferred only, else as few hosts as possible, the last of them the fullest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from echelon.model.open_shape import Shares
from echelon.placement.shares import Wish, choose

from .replay import Given, Nodes, Policy


def ours(shares: Shares = "equal", *, whole: int = 0) -> Policy:
    """What `--total-gpus N` does: the real code, on the real index. Up to `whole` GPUs are not split."""

    def place(nodes: Nodes, size: int) -> Given | None:
        found = choose(nodes.index, Wish(least=size, most=size, shares=shares))
        if found is None or (size <= whole and len(found.shares) > 1):
            return None
        return found.shares

    return place


def largest_first(nodes: Nodes, size: int) -> Given | None:
    """Fill the node with the most free GPUs, then the next: the naive rule."""
    return _fill(nodes.by_free(), size)


def pod_by_pod(nodes: Nodes, size: int) -> Given | None:
    """Pods with one GPU each, each on the fullest node (the scheduler's MostAllocated)."""
    return _fill(reversed(nodes.by_free()), size)


def _fill(order: Iterable[tuple[int, Sequence[str]]], size: int) -> Given | None:
    """Take all of one node after the other."""
    given: list[tuple[str, int]] = []
    left = size
    for free, names in order:
        for name in names:
            if left <= 0:
                return given
            given.append((name, min(free, left)))
            left -= free
    return given if left <= 0 else None


def one_host(nodes: Nodes, size: int) -> Given | None:
    """Kueue, host required: the fullest that holds all."""
    fitting = [(free, names) for free, names in nodes.by_free() if free >= size]
    return [(fitting[-1][1][0], size)] if fitting else None


def few_hosts(nodes: Nodes, size: int) -> Given | None:
    """Kueue, host preferred."""
    one = one_host(nodes, size)
    if one is not None or nodes.total < size:
        return one
    given: list[tuple[str, int]] = []
    left = size
    there = [(free, name) for free, names in nodes.by_free() for name in names]
    for number, (free, name) in enumerate(there):
        last = [each for each in there[number:] if each[0] >= left]
        if last:
            return [*given, (last[-1][1], left)]
        given.append((name, free))
        left -= free
    return None


def one_host_up_to(most: int) -> Policy:
    """Kueue, host required up to so many GPUs, preferred above: as its administrators would set it up."""
    return lambda nodes, size: (one_host if size <= most else few_hosts)(nodes, size)
