"""A run's events and metrics as one stream: what is known, or what comes until the run ends; and how far its
training has come. It only reads.

The lines, the events and TensorBoard's files of a run are three sources that may each be silent for hours. To
follow them, each is read by a thread of its own, which waits while the reader of the whole is slow
(`Merged`)."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Generic, TypeVar

from echelon.engines.base import Engine
from echelon.metrics.event_files import EventFiles
from echelon.metrics.progress import ProgressReader
from echelon.metrics.reader import MetricReader, read_all
from echelon.model.event import Event
from echelon.model.output.metric import Metric
from echelon.model.output.progress import Progress
from echelon.model.run import Record, RunRef
from echelon.model.status import Status

T = TypeVar("T")
Source = Callable[[], Iterator[Sequence[T]]]
_WAITING = 16  # batches that wait for a slow reader: each may be thousands of metrics
Item = Event | Metric
Batches = Iterator[Sequence[Item]]
_LOOK = 1.0  # seconds between two looks at TensorBoard's files
_LOOKED_AT = 4  # workers: the first rank nearly always tells how far it is
_CLOCKS = 60.0  # seconds by which clocks of two machines may differ


class Merged(Generic[T]):
    """What all sources give, until the last one ends; an error of one is raised where this is read.

    Its reader may `add` a source meanwhile."""

    def __init__(self, sources: Iterable[Source[T]]) -> None:
        self._batches: list[Sequence[T] | BaseException] = []
        self._changed = threading.Condition()
        self._open = 0
        self._left = False
        for source in sources:
            self.add(source)

    def add(self, source: Source[T]) -> None:
        """Read one more."""
        with self._changed:
            self._open += 1
        threading.Thread(target=self._pump, args=(source,), name="observing", daemon=True).start()

    def __iter__(self) -> Iterator[T]:
        try:
            while batches := self._take():
                for batch in batches:
                    if isinstance(batch, BaseException):
                        raise batch
                    yield from batch
        finally:
            with self._changed:
                self._left = True
                self._changed.notify_all()

    def _take(self) -> list[Sequence[T] | BaseException]:
        """All that waits to be read; nothing once every source has ended."""
        with self._changed:
            while not self._batches and self._open:
                self._changed.wait()
            batches, self._batches = self._batches, []
            self._changed.notify_all()
            return batches

    def _pump(self, source: Source[T]) -> None:
        try:
            for batch in source():
                self._put(batch)
                if self._left:
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised where the stream is read
            self._put((), error)
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def _put(self, batch: Sequence[T], error: BaseException | None = None) -> None:
        if not batch and error is None:
            return
        with self._changed:
            while len(self._batches) >= _WAITING and not self._left:
                self._changed.wait()
            self._batches.append(batch if error is None else error)
            self._changed.notify_all()


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
        # A folder of that name may be another run's; one that is resumed continues in its own.
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
