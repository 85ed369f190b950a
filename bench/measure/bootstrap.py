"""How sure a mean of waiting times is: an interval from blocks of days, drawn again and again. Pure.

Jobs that wait at the same time wait for the same reason, so blocks of days are drawn, not single jobs. Two
policies are compared on the same blocks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from random import Random

Block = Hashable
Sums = Mapping[Block, tuple[float, int]]  # of each block: the sum, and of how many jobs


def sums(values: Iterable[tuple[Block, float]]) -> dict[Block, tuple[float, int]]:
    """Add up the values of each block."""
    found: dict[Block, tuple[float, int]] = {}
    for block, value in values:
        total, count = found.get(block, (0.0, 0))
        found[block] = total + value, count + 1
    return found


def mean(of: Sums) -> float:
    """The mean over all jobs."""
    return sum(total for total, _ in of.values()) / max(1, sum(count for _, count in of.values()))


def interval(one: Sums, other: Sums, *, draws: int = 2000, seed: int = 1) -> tuple[float, float]:
    """Between what the mean of one minus that of the other is, in 95 of 100 draws."""
    random = Random(seed)
    blocks = sorted(one, key=repr)
    found = []
    for _ in range(draws):
        drawn = random.choices(blocks, k=len(blocks))
        jobs = sum(one[block][1] for block in drawn)
        found.append(sum(one[block][0] - other[block][0] for block in drawn) / max(1, jobs))
    found.sort()
    return found[int(draws * 0.025)], found[int(draws * 0.975)]
