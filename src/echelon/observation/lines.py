"""The lines of a run that are asked for: of one rank or worker, from a time on, or the last ones."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import chain

from echelon.engines.base import Engine
from echelon.model.output.log import LogLine, each_line, whole_lines
from echelon.model.run import RunRef


def lines_of(
    engine: Engine,
    ref: RunRef,
    *,
    rank: int | None,
    worker: int | None,
    follow: bool,
    tail: int | None,
    since: float | None,
) -> Iterator[LogLine]:
    """What the ranks wrote, line by line; with `follow`, as it is written, until the run ends."""
    ranks = None if rank is None else frozenset({rank})

    def wanted(line: LogLine) -> bool:
        return (worker is None or line.worker == worker) and (since is None or line.at >= since)

    if tail is None:
        pieces = chain(_earlier(engine, ref, ranks), engine.logs(ref, ranks=ranks, follow=follow))
        return filter(wanted, whole_lines(pieces))
    return _last_lines(engine, ref, ranks, wanted, tail, follow=follow)


def _earlier(engine: Engine, ref: RunRef, ranks: frozenset[int] | None) -> Iterator[LogLine]:
    """The pieces of the starts before the run was resumed."""
    for piece in each_line(engine.earlier_output(ref)):
        if ranks is None or piece.rank in ranks:
            yield piece


def _last_lines(
    engine: Engine,
    ref: RunRef,
    ranks: frozenset[int] | None,
    wanted: Callable[[LogLine], bool],
    tail: int,
    *,
    follow: bool,
) -> Iterator[LogLine]:
    """The last lines of what is there and, with `follow`, what comes after it."""
    there: Counter[int] = Counter()  # pieces of each worker's output, which come in the same order twice

    def pieces() -> Iterator[LogLine]:
        yield from _earlier(engine, ref, ranks)
        for piece in engine.logs(ref, ranks=ranks):
            there[piece.worker] += 1
            yield piece

    yield from deque(filter(wanted, whole_lines(pieces())), maxlen=min(tail, sys.maxsize))
    if not follow:
        return

    def new_pieces() -> Iterator[LogLine]:
        for piece in engine.logs(ref, ranks=ranks, follow=True):
            if there[piece.worker] > 0:
                there[piece.worker] -= 1
            else:
                yield piece

    yield from filter(wanted, whole_lines(new_pieces()))
