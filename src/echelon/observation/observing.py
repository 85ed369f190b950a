"""A run's events and metrics as one stream: what is known, or what comes until the run ends; and how far its
training has come. It only reads.

The lines, the events and TensorBoard's files of a run are three sources that each may be silent for hours. To
follow them, each has a thread."""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
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

Item = Event | Metric
Batches = Iterator[Sequence[Item]]
_LOOK = 1.0  # seconds between two looks at TensorBoard's files
_WAITING = 16  # batches that wait for a slow reader before the sources wait: each may be thousands of metrics
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
    record = engine.read(ref)
    reader = MetricReader(record.job.metric_patterns if patterns is None else patterns)
    files = _Files(record)
    if follow:
        over = threading.Event()
        sources = [partial(_single, engine.events(ref, follow=True))] if events else []
        if metrics:
            sources += [partial(_measured, engine, ref, reader, over), partial(files.follow, over)]
        found = merged(sources)
    else:
        every: list[Iterator[Item]] = [engine.events(ref)] if events else []
        if metrics:
            pieces = chain(engine.earlier_output(ref), engine.output(ref, follow=False))
            every.append(read_all(pieces, reader))
            if written := list(files.read()):
                every.append(iter(written))
        found = every[0] if len(every) == 1 else heapq.merge(*every, key=lambda item: item.at)
    return _end_last(found)


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


def _single(events: Iterable[Event]) -> Batches:
    for event in events:
        yield (event,)


def _measured(engine: Engine, ref: RunRef, reader: MetricReader, over: threading.Event) -> Batches:
    try:
        for piece in chain(engine.earlier_output(ref), engine.output(ref, follow=True)):
            if found := reader.read(piece):
                yield found
    finally:
        over.set()


def _end_last(items: Iterator[Item]) -> Iterator[Item]:
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


def merged(sources: Sequence[Callable[[], Batches]]) -> Iterator[Item]:
    """What all sources give, as it comes, until the last one ends; an error of one is raised here."""
    waiting: queue.Queue[Sequence[Item] | BaseException | None] = queue.Queue(_WAITING)
    left = threading.Event()

    def put(batch: Sequence[Item] | BaseException | None) -> None:
        while not left.is_set():
            try:
                waiting.put(batch, timeout=_LOOK)
            except queue.Full:
                continue
            return

    def pump(source: Callable[[], Batches]) -> None:
        try:
            for batch in source():
                if left.is_set():
                    return
                if batch:
                    put(batch)
        except BaseException as error:  # noqa: BLE001 - it is raised where the stream is read
            put(error)
        put(None)

    for source in sources:
        threading.Thread(target=pump, args=(source,), name="observing", daemon=True).start()
    open_ = len(sources)
    try:
        while open_:
            batch = waiting.get()
            if batch is None:
                open_ -= 1
            elif isinstance(batch, BaseException):
                raise batch
            else:
                yield from batch
    finally:
        left.set()
