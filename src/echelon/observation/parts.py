"""The streams of a run that is made of runs: what its steps have written and measured, each with its step.

Its events tell which steps have a run, and where. To follow it, every active step has a thread, and so
have the events, which bring those that begin later; steps that are over are read one after the other, before.
What its executor has written itself, such as why it has failed, belongs to no step and comes last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import merge
from itertools import chain, islice
from typing import TypeVar

from msgspec.structs import replace as with_fields

from echelon.engines.base import Engine
from echelon.errors import EchelonError, UnknownRun
from echelon.model.event import Event
from echelon.model.output.log import GAP, LogBlock, LogLine, PartLine, line_of, whole_lines
from echelon.model.output.metric import Metric
from echelon.model.program import OVER, Step
from echelon.model.run import RunRef, opening_status
from echelon.model.status import FINAL, fold, of_the_whole
from echelon.observation import lines as run_lines
from echelon.observation import observing, standing
from echelon.observation.observing import Merged, Source
from echelon.observation.step_runs import StepRuns, of_all_starts
from echelon.values import frozen

T = TypeVar("T")


@frozen
class Part:
    """The run of a step, or, without a name, what its executor does itself."""

    name: str
    engine: Engine
    ref: RunRef
    over: bool = False
    again: bool = False  # it was read up to its end before, and was started again since


def lines(
    engine: Engine,
    ref: RunRef,
    *,
    rank: int | None = None,
    worker: int | None = None,
    follow: bool = False,
    tail: int | None = None,
    since: float | None = None,
) -> Iterator[LogLine]:
    """What the ranks of all steps wrote: one step after the other or, with `follow`, as it comes. The last
    `tail` lines are those of the whole, in the order of time. A step whose output cannot be read has one
    line, which says so.
    """
    steps = _Steps(engine, ref)
    wanted = run_lines.LineFilter(rank=rank, worker=worker, since=since)
    known: dict[RunRef, Counter[int]] = {}

    def read_last(part: Part) -> Iterator[LogLine]:
        assert tail is not None
        found, known[part.ref] = run_lines.last_lines(part.engine, part.ref, wanted, tail)
        return iter(found)

    def read(part: Part) -> Iterator[LogLine]:
        if (there := known.pop(part.ref, None)) is not None:
            return run_lines.new_lines(part.engine, part.ref, wanted, there)
        return run_lines.lines_of(
            part.engine, part.ref, wanted, follow=follow and not part.over, earlier=not part.again
        )

    if tail is not None:
        last: list[LogLine] = []
        for part in steps.there:
            last = sorted([*last, *_marked(part, read_last)], key=lambda line: line.at)
            last = last[max(0, len(last) - tail) :]
        yield from last
        if not follow:
            return
        steps.forget_over()
    yield from steps.read(lambda part: [partial(_written, part, read)], follow=follow)


def pieces(engine: Engine, ref: RunRef, *, earlier: bool = False) -> Iterator[LogLine | LogBlock]:
    """All that comes, until the end; many lines in one piece, and none in parts. With `earlier`, what steps
    wrote before the run was resumed comes first.
    """

    def read(part: Part) -> Iterator[LogLine | LogBlock]:
        before = part.engine.earlier_output(part.ref) if earlier and not part.again else ()
        return whole_lines(chain(before, part.engine.output(part.ref, follow=not part.over)))

    steps = _Steps(engine, ref, earlier=earlier)
    yield from steps.read(lambda part: [partial(_written, part, read)], follow=True)


def observe(
    engine: Engine,
    ref: RunRef,
    *,
    follow: bool = False,
    events: bool = True,
    metrics: bool = True,
    patterns: Sequence[str] | None = None,
) -> Iterator[observing.Item]:
    """Its own events, and what its steps have measured: one step after the other or, with `follow`, as it
    comes. The run's end comes last. A failure is that of the step that has failed, not of its executor. What
    keeps a step's metrics from being read is raised when all others have been.
    """
    if not metrics:
        yield from _of_the_whole(observing.observe(engine, ref, follow=follow, metrics=False))
        return
    steps = _Steps(engine, ref, own=False)
    troubles: list[EchelonError] = []

    def sources(part: Part) -> Sequence[Source[observing.Item]]:
        if follow and not part.over:
            try:
                found = observing.measured(part.engine, part.ref, patterns, earlier=not part.again)
            except EchelonError as error:
                troubles.append(error)
                return ()
        else:
            found = [partial(_measured, part, patterns)]
        return [partial(_with_part, part, source, troubles) for source in found]

    found = steps.read(sources, follow=follow, tell=lambda event: (event,) if events else ())
    if events and not follow:
        found = merge(engine.events(ref), found, key=lambda item: item.at)
    yield from _of_the_whole(observing.end_last(found))
    if troubles:
        raise troubles[0]


def _of_the_whole(items: Iterable[observing.Item]) -> Iterator[observing.Item]:
    """The same items, with the executor's failure replaced by what it means for the run."""
    steps: dict[str, Step] = {}
    for item in items:
        if isinstance(item, Event):
            steps.update((step.name, step) for step in item.steps or ())
            yield of_the_whole(item, steps.values())
        else:
            yield item


def later_starts(engine: Engine, ref: RunRef) -> list[standing.Start]:
    """When it was started again, and when one of its steps was."""
    found = standing.later_starts(engine, ref)
    for part in _Steps(engine, ref, own=False).there:
        found += [replace(start, part=part.name) for start in standing.later_starts(part.engine, part.ref)]
    return sorted(found, key=lambda start: start.at)


class _LeftAlone:
    """The end, though steps continue: their executor is gone, and they may run for days."""


class _Steps:
    """The runs of its steps: those that are there when this is made, and those that begin after it."""

    def __init__(self, engine: Engine, ref: RunRef, *, earlier: bool = True, own: bool = True) -> None:
        """With `earlier`, also those that were done before it was resumed, and are kept; with `own`, what the
        executor writes, too.
        """
        self._engine, self._ref = engine, ref
        self._over: dict[str, bool] = {}  # by the addresses of the runs, whether they were when last seen
        self._seen = 0
        record = engine.read(ref)
        status = fold(opening_status(record), self._counted(engine.events(ref)))
        self._runs = StepRuns(engine, record)
        known = of_all_starts(engine, ref, status.steps) if earlier else {}
        steps = {step.name: known.get(step.name, step) for step in status.steps if step.run or earlier}
        self.there: list[Part] = []
        for name, (at, there) in self._runs.of(steps.values()).items():
            over = steps[name].state in OVER
            self._over[str(at)] = over
            self.there.append(Part(name=name, engine=there, ref=at, over=over))
        if own:
            self.there.append(Part(name="", engine=engine, ref=ref, over=status.state in FINAL))

    def forget_over(self) -> None:
        """Those that are over have been read."""
        self.there = [part for part in self.there if not part.over]

    def read(
        self,
        sources: Callable[[Part], Sequence[Source[T]]],
        *,
        follow: bool,
        tell: Callable[[Event], Sequence[T]] = lambda _: (),
    ) -> Iterator[T]:
        """The items of each run's sources, one run after the other or, with `follow`, as they come, with
        those that `tell` makes of the events of the whole.
        """
        if follow:
            yield from chain.from_iterable(map(tell, islice(self._engine.events(self._ref), self._seen)))
        for part in self.there:
            if part.over or not follow:
                for source in sources(part):
                    yield from chain.from_iterable(source())
        if not follow:
            return
        going = [source for part in self.there if not part.over for source in sources(part)]
        stream: Merged[T | Part | _LeftAlone] = Merged([*going, partial(self._coming, tell)])
        for item in stream:
            if isinstance(item, Part):
                for source in sources(item):
                    stream.add(source)
            elif isinstance(item, _LeftAlone):
                return
            else:
                yield item

    def _counted(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            self._seen += 1
            yield event

    def _coming(self, tell: Callable[[Event], Sequence[T]]) -> Iterator[Sequence[T | Part | _LeftAlone]]:
        """What to show of what happens from now on, and the runs that begin."""
        for event in islice(self._engine.events(self._ref, follow=True), self._seen, None):
            begun = [part for step in event.steps or () if (part := self._begun(step)) is not None]
            left = event.kind == "finished" and not all(self._over.values())
            yield [*tell(event), *begun, *([_LeftAlone()] if left else ())]

    def _begun(self, step: Step) -> Part | None:
        """The run of a step, if it has begun since the last look."""
        if not step.run:
            return None
        at, there = self._runs.at(step.run)
        over, was_over = step.state in OVER, self._over.get(str(at))
        self._over[str(at)] = over
        if was_over is None or (was_over and not over):
            return Part(name=step.name, engine=there, ref=at, again=was_over is not None)
        return None


Piece = TypeVar("Piece", LogLine, LogLine | LogBlock)


def _written(part: Part, read: Callable[[Part], Iterator[Piece]]) -> Iterator[Sequence[Piece]]:
    for piece in _marked(part, read):
        yield (piece,)


def _marked(part: Part, read: Callable[[Part], Iterator[Piece]]) -> Iterator[Piece]:
    """What was written, with its step. That it cannot be read is a line, too: others continue."""
    try:
        for piece in read(part):
            if isinstance(piece, LogLine):
                yield line_of(part.name, piece)
            else:
                yield replace(piece, first=line_of(part.name, piece.first))
    except UnknownRun:
        return  # it was removed, and its output with it
    except EchelonError as error:
        text = f"its output cannot be read: {error}"
        yield PartLine(text=text, at=time.time(), worker=0, sequence=GAP, part=part.name)


def _measured(part: Part, patterns: Sequence[str] | None) -> Iterator[Sequence[observing.Item]]:
    return observing.each_alone(observing.observe(part.engine, part.ref, events=False, patterns=patterns))


def _with_part(
    part: Part, source: Source[observing.Item], troubles: list[EchelonError]
) -> Iterator[Sequence[observing.Item]]:
    """What was measured, with its step."""
    try:
        for batch in source():
            yield [with_fields(each, part=part.name) for each in batch if isinstance(each, Metric)]
    except UnknownRun:
        return  # it was removed, and its metrics with it
    except EchelonError as error:
        troubles.append(error)
