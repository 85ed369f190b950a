"""What pages show of one run, followed once for all of them: lines, events, metrics. It only reads.

Pages share each look, too: what is `Polled` is looked at again when a page asks and the last look is old, so
nothing is asked where no page is open. A follower cannot be interrupted while its source is silent, so a feed
that no page shows any more is closed, and ends with the next line or event."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar

from echelon.errors import EchelonError, Unavailable
from echelon.handle import Run
from echelon.metrics.curves import MOST_CHARTS, Curves
from echelon.metrics.progress import ProgressReader
from echelon.model.engine.usage import RunUsage
from echelon.model.event import Event
from echelon.model.output.log import LogBlock, LogLine, whole_lines
from echelon.model.output.metric import Metric
from echelon.model.output.progress import Progress
from echelon.model.status import FINAL, RunSummary, Status, with_progress
from echelon.ui.spool import Spool
from echelon.values import frozen

T = TypeVar("T")
_MOST = 500  # phases that are kept: the last ones of a run that restarts for ever
_BEGINS = {
    "recorded": "recorded",
    "queued": "queued",
    "admitted": "placed",
    "waiting": "waiting",
    "worker-started": "starting",
    "gave-way": "queued",
    "restarting": "restarting",
    "notice": "stopping",
    "resizing": "stopping",
    "stopping": "stopping",
    "verdict": "ending",
}
_MOST_EVENTS = 2000  # the last ones
_MOST_FEEDS = 8
_QUIET = 0.3  # seconds without news, after which what there was of an active run has been read
_PATIENCE = 3.0  # seconds after the first look that a request waits for that
_USE = 5.0  # seconds between two looks at what workers use
_YIELD = 0.1  # seconds that the next piece of output waits at most, while a page is answered


class Polled(Generic[T]):
    """The value of `look`, at most `every` seconds old; `version` counts its changes."""

    def __init__(self, look: Callable[[], T], every: float) -> None:
        self._look, self._every = look, every
        self._lock = threading.Lock()
        self._value: T | None = None
        self._seen: float | None = None
        self.version = 0

    def get(self) -> tuple[T, int]:
        """The value and its version; an error of the look is raised in every caller."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen >= self._every:
                value = self._look()
                if self._seen is None or value != self._value:
                    self.version += 1
                self._value, self._seen = value, time.monotonic()
            assert self._value is not None
            return self._value, self.version

    def forget(self) -> None:
        """Look again the next time: something was changed."""
        with self._lock:
            self._seen = None


@frozen
class Phase:
    """A stretch of time; `end` is None while it lasts."""

    name: str
    start: float
    end: float | None = None
    reason: str | None = None


class Timeline:
    """The phases so far."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self._started: set[int | None] = set()
        self._running: set[int | None] = set()
        self._members: tuple[int, ...] | None = None  # where their number changes, those that take part

    def add(self, event: Event) -> None:
        """Take an event into account; they come in order."""
        if event.kind == "finished":
            self._end(event.at)
        elif event.kind == "resized":
            self._members = event.workers
        elif event.kind == "worker-started" and event.worker not in (self._members or (event.worker,)):
            pass  # it takes part later
        elif event.kind == "worker-running":
            self._running.add(event.worker)
            if self._running >= self._started:
                self._begin("training", event.at, None)
        elif event.kind == "waiting" and event.trouble == "pulling":
            self._begin("pulling", event.at, event.reason)
        elif (name := _BEGINS.get(event.kind)) is not None:
            if event.kind in ("admitted", "gave-way", "restarting", "queued"):
                self._started.clear()
                self._running.clear()
            elif event.kind == "worker-started":
                self._started.add(event.worker)
                self._running.discard(event.worker)
            self._begin(name, event.at, event.reason)

    def _begin(self, name: str, at: float, reason: str | None) -> None:
        last = self.phases[-1] if self.phases else None
        if last is not None and last.end is None and last.name == name:
            self.phases[-1] = replace(last, reason=reason or last.reason)
            return
        self._end(at)
        self.phases.append(Phase(name=name, start=at, reason=reason))
        del self.phases[:-_MOST]

    def _end(self, at: float) -> None:
        if self.phases and self.phases[-1].end is None:
            last = self.phases[-1]
            self.phases[-1] = replace(last, end=max(last.start, at))


def plain_number(value: float) -> float | str:
    """A number as JSON has it; a text for one that it does not have."""
    return value if math.isfinite(value) else str(value)


class Feed:
    """One run, from the moment a page first showed it; `over` says that it had ended then."""

    def __init__(self, run: Run, *, over: bool = False) -> None:
        self.run = run
        self._over = over
        self.lines = Spool()
        self.curves = Curves()
        self.timeline = Timeline()
        self.events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self.events_seen = 0
        self.trouble: EchelonError | None = None
        self.job: str | None = None  # as text, once it was read
        self._status = Polled(lambda: run.status(progress=False), every=0.5)
        self._use = Polled(run.usage, every=_USE)
        self._reader = ProgressReader(_patterns_of(run))
        self._reading = threading.Lock()
        self._answering, self._counting = 0, threading.Lock()  # pages that wait for lines
        self._free = threading.Event()  # no page waits
        self._free.set()
        self._closed = False
        self._opened = self._read_at = time.monotonic()
        self._threads = [
            threading.Thread(target=self._follow, args=work, name=f"feed of {run.name}", daemon=True)
            for work in (
                (lambda: whole_lines(run.raw_logs(earlier=True)), self._take_output),
                (lambda: run.observe(follow=True), self._take),
            )
        ]
        for thread in self._threads:
            thread.start()

    @property
    def complete(self) -> bool:
        """Whether the run is over, and all of it was read."""
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def begun(self) -> bool:
        """Whether there is anything to show: what has happened is read within a moment."""
        return self.events_seen > 0 or self.complete or time.monotonic() - self._opened > _PATIENCE

    def status(self) -> Status:
        """How the run stands, and how far it has come by the lines that were read."""
        return with_progress(self._status.get()[0], self.progress())

    def usage(self) -> RunUsage:
        """What its workers use, and how late its ranks come."""
        return self._use.get()[0]

    def progress(self) -> Progress | None:
        """The progress of the lowest rank that prints it."""
        with self._reading:
            return self._reader.lowest()

    def charts(self, rank: int | None, search: str = "", most: int = MOST_CHARTS) -> list[dict[str, Any]]:
        """The curves of a rank. A last value that JSON has no number for is a text: nan, inf or -inf."""
        found = self.curves.charts(rank, search=search, most=most)
        return [{**each, "last": plain_number(each["last"])} for each in found]

    def forget_status(self) -> None:
        """Something was done to the run."""
        self._status.forget()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A page waits for lines: what comes is read a moment later, for all threads share one processor."""
        with self._counting:
            self._answering += 1
            self._free.clear()
        try:
            yield
        finally:
            with self._counting:
                self._answering -= 1
                if not self._answering:
                    self._free.set()

    def catch_up(self) -> None:
        """Wait, soon after the first look, until what there was has been read."""
        deadline = self._opened + _PATIENCE
        while time.monotonic() < deadline and not self.complete:
            quiet = time.monotonic() - self._read_at > _QUIET
            if quiet and self.begun and not self._over:  # one that is over is read to its end
                return
            time.sleep(0.02)

    def close(self) -> None:
        """No page shows it any more."""
        self._closed = True
        self.lines.close()

    def _follow(self, source: Callable[[], Iterable[T]], take: Callable[[T], None]) -> None:
        try:
            for item in source():
                if self._closed:
                    return
                take(item)
                self._read_at = time.monotonic()
                if not self._free.is_set():
                    self._free.wait(_YIELD)
        except EchelonError as error:
            self.trouble = error
        except ValueError:
            if not self._closed:  # the spool's file was closed below it
                raise

    def _take_output(self, piece: LogLine | LogBlock) -> None:
        self.lines.append(piece)
        if (piece if isinstance(piece, LogLine) else piece.first).part:  # the page of the step tells
            return
        with self._reading:
            self._reader.read(piece)

    def _take(self, item: Event | Metric) -> None:
        if isinstance(item, Metric):
            self.curves.add(item)
            return
        self.timeline.add(item)
        self.events.append(item)
        self.events_seen += 1


def _patterns_of(run: Run) -> tuple[str, ...]:
    try:
        return run.job().metric_patterns
    except EchelonError:  # a damaged run, whose output may be there
        return ()


class Feeds:
    """The feeds of the runs that were looked at last."""

    def __init__(self) -> None:
        self._feeds: OrderedDict[tuple[str, float], Feed] = OrderedDict()
        self._lock = threading.Lock()
        self._over = False

    def of(self, row: RunSummary, attach: Callable[[], Run]) -> Feed:
        """The feed of a run. One that was resumed, or whose name another run has now, gets a new one."""
        key = (row.uri, row.created)
        with self._lock:
            if self._over:
                raise Unavailable("the dashboard was ended", hint="`echelon ui` starts another")
            feed = self._feeds.pop(key, None)
            if feed is not None and feed.complete and row.state not in (*FINAL, "damaged", "recorded"):
                feed.forget_status()  # the list may be older than the end
                if feed.status().state not in FINAL:
                    feed.close()
                    feed = None
            if feed is None:
                feed = Feed(attach(), over=row.state in FINAL)
            self._feeds[key] = feed
            while len(self._feeds) > _MOST_FEEDS:
                self._feeds.popitem(last=False)[1].close()
            return feed

    def close(self) -> None:
        """End all of them, for good."""
        with self._lock:
            self._over = True
            for feed in self._feeds.values():
                feed.close()
            self._feeds.clear()
