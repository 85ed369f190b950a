"""A run's events and metrics as one stream: what is known, or what comes until the run ends; and how far its
training has come. It only reads.

The lines, the events and TensorBoard's files of a run are three sources that each may be silent for hours. To
follow them, each has a thread."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from echelon.engines.base import Engine
from echelon.metrics.event_files import EventFiles
from echelon.metrics.progress import ProgressReader
from echelon.metrics.reader import MetricReader, read_all
from echelon.model.event import Event
from echelon.model.output.metric import Metric
from echelon.model.output.progress import Progress
from echelon.model.run import Record, RunRef
from echelon.model.status import Status
from echelon.observation.merging import Merged, Source

Item = Event | Metric
Batches = Iterator[Sequence[Item]]
_LOOK = 1.0  # seconds between two looks at TensorBoard's files
_LOOKED_AT = 4  # workers: the first rank nearly always tells how far it is
_CLOCKS = 60.0  # seconds by which clocks of two machines may differ


def observe(
    engine: Engine,
    ref: RunRef,
    *,
    follow: bool = False,
    events: bool = True,
    metrics: bool = True,
    patterns: Sequence[str] | None = None,
) -> Iterator[Item]:
    """What happened and what was measured, in the order of time; with `follow`, as it comes, until the run
    has ended. The run's end comes last. `patterns` replace those of the job. Of a run that was resumed, what
    was measured in all of its starts, and what has happened since the last.
    """
    if follow:
        sources: list[Source[Item]] = [partial(each_alone, engine.events(ref, follow=True))] if events else []
        if metrics:
            sources += measured(engine, ref, patterns)
        found = iter(Merged(sources))
    else:
        record = engine.read(ref)
        reader = MetricReader(record.job.metric_patterns if patterns is None else patterns)
        files = _Files(record)
        every: list[Iterator[Item]] = [engine.events(ref)] if events else []
        if metrics:
            pieces = chain(engine.earlier_output(ref), engine.output(ref, follow=False))
            every.append(read_all(pieces, reader))
            if written := list(files.read()):
                every.append(iter(written))
        found = every[0] if len(every) == 1 else heapq.merge(*every, key=lambda item: item.at)
    return end_last(found)


def measured(
    engine: Engine, ref: RunRef, patterns: Sequence[str] | None = None, *, earlier: bool = True
) -> list[Source[Item]]:
    """What is measured, as it comes, until the run has ended; with `earlier`, in all of its starts."""
    record = engine.read(ref)
    reader = MetricReader(record.job.metric_patterns if patterns is None else patterns)
    over = threading.Event()
    return [
        partial(_printed, engine, ref, reader, over, earlier=earlier),
        partial(_Files(record).follow, over),
    ]


class _Files:
    """TensorBoard's files among the results, as far as these are on this machine."""

    def __init__(self, record: Record) -> None:
        self._files = EventFiles(Path(record.results)) if record.results else None
        # A folder of that name may be another run's; one that is resumed goes on in its own.
        self._since = 0.0 if record.job.resume or record.job.earlier else record.created - _CLOCKS

    def read(self) -> Iterator[Metric]:
        found = self._files.read() if self._files is not None else ()
        return iter(sorted((each for each in found if each.at >= self._since), key=lambda each: each.at))

    def follow(self, over: threading.Event) -> Batches:
        while True:
            last = over.wait(_LOOK)
            yield tuple(self.read())
            if last:
                return


def written(record: Record) -> Sequence[Metric]:
    """What stands in TensorBoard's files among the results on this machine."""
    return list(_Files(record).read())


def each_alone(items: Iterable[Item]) -> Batches:
    """Each as a batch of its own, which is seen as soon as it comes."""
    for item in items:
        yield (item,)


def _printed(
    engine: Engine, ref: RunRef, reader: MetricReader, over: threading.Event, *, earlier: bool
) -> Batches:
    try:
        before = engine.earlier_output(ref) if earlier else ()
        for piece in chain(before, engine.output(ref, follow=True)):
            if found := reader.read(piece):
                yield found
    finally:
        over.set()


def end_last(items: Iterator[Item]) -> Iterator[Item]:
    """A run's last lines may be read after its end is known."""
    end = None
    for item in items:
        if isinstance(item, Event) and item.kind == "finished":
            end = item
        else:
            yield item
    if end is not None:
        yield end


def progress_of(engine: Engine, record: Record, status: Status) -> Progress | None:
    """How far the training has come: of the lowest rank that tells it, as far as its last lines do. Of many
    workers only the first ones are looked at.
    """
    reader = ProgressReader(record.job.metric_patterns)
    for worker in status.workers[:_LOOKED_AT]:
        for line in engine.recent(record.ref, worker.worker):
            reader.read(line)
            if line.rank is not None:
                reader.of(line.rank)  # line by line: what was said once, such as the epoch, is remembered
        if (found := reader.lowest(worker.ranks)) is not None:
            return found
    return None
