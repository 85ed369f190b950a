"""The lines of a run that are asked for: of one rank or worker, from a time on, or the last ones."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator
from itertools import chain

from echelon.engines.base import Engine
from echelon.model.output.log import LogLine, each_line, whole_lines
from echelon.model.run import RunRef
from echelon.values import frozen


@frozen
class LineFilter:
    """Which lines: of one rank or worker, from a time on."""

    rank: int | None = None
    worker: int | None = None
    since: float | None = None

    @property
    def ranks(self) -> frozenset[int] | None:
        """The ranks that are read; None for all."""
        return None if self.rank is None else frozenset({self.rank})

    def has(self, line: LogLine) -> bool:
        """Whether a line of these ranks is one of them."""
        return (self.worker is None or line.worker == self.worker) and (
            self.since is None or line.at >= self.since
        )


def lines_of(
    engine: Engine, ref: RunRef, wanted: LineFilter, *, follow: bool = False, earlier: bool = True
) -> Iterator[LogLine]:
    """What the ranks wrote, line by line: with `follow`, as it comes, until the run ends; with `earlier`, in
    all of its starts.
    """
    before = _earlier(engine, ref, wanted) if earlier else ()
    return filter(wanted.has, whole_lines(chain(before, engine.logs(ref, ranks=wanted.ranks, follow=follow))))


def lines_from_last(
    engine: Engine, ref: RunRef, wanted: LineFilter, tail: int, *, follow: bool
) -> Iterator[LogLine]:
    """The last lines of what is there and, with `follow`, what comes after it."""
    last, there = last_lines(engine, ref, wanted, tail)
    yield from last
    if follow:
        yield from new_lines(engine, ref, wanted, there)


def last_lines(
    engine: Engine, ref: RunRef, wanted: LineFilter, tail: int
) -> tuple[deque[LogLine], Counter[int]]:
    """The last lines of what is there, and how many pieces of each worker's output that is."""
    there: Counter[int] = Counter()

    def pieces() -> Iterator[LogLine]:
        yield from _earlier(engine, ref, wanted)
        for piece in engine.logs(ref, ranks=wanted.ranks):
            there[piece.worker] += 1
            yield piece

    return deque(filter(wanted.has, whole_lines(pieces())), maxlen=min(tail, sys.maxsize)), there


def new_lines(engine: Engine, ref: RunRef, wanted: LineFilter, there: Counter[int]) -> Iterator[LogLine]:
    """What comes after those pieces, until the run ends: each worker's come in the same order twice."""

    def pieces() -> Iterator[LogLine]:
        for piece in engine.logs(ref, ranks=wanted.ranks, follow=True):
            if there[piece.worker] > 0:
                there[piece.worker] -= 1
            else:
                yield piece

    return filter(wanted.has, whole_lines(pieces()))


def _earlier(engine: Engine, ref: RunRef, wanted: LineFilter) -> Iterator[LogLine]:
    """The pieces of the starts before the run was resumed."""
    ranks = wanted.ranks
    for piece in each_line(engine.earlier_output(ref)):
        if ranks is None or piece.rank in ranks:
            yield piece
