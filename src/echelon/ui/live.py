"""What a page receives over its WebSocket: all of it at first, and then what has changed.

A run may have thousands of metrics: a page says which it draws."""

from __future__ import annotations

import time
from typing import Any

import anyio
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from echelon.engines.decoding import decode
from echelon.errors import EchelonError, InvalidJob, UnknownRun
from echelon.metrics.curves import MOST_CHARTS
from echelon.model.status import FINAL, RunSummary, Status
from echelon.ui.feed import Feed
from echelon.ui.reading import Reading, error_data, progress_data
from echelon.ui.spool import PAGE, LineQuery, Selection

_TICK = 0.25  # seconds between two looks for news
_CURVES = 1.0  # the same for curves
_BEAT = 5.0  # seconds after which a page hears again that the server is there (server.js)
_EACH_STEP = 0.002  # seconds between two reports of how a run stands, for each of its steps: all are sent
_STALE = 1.0  # seconds after which a page that only asks for lines gets the rest, too
News = list[dict[str, Any]]


class Charts(msgspec.Struct, frozen=True):
    """The first so many of those whose name has a text."""

    charts: str
    most: int = MOST_CHARTS


USUAL = Charts(charts="")


def read_charts(text: str) -> Charts | None:
    """What a page asks for; None for anything else."""
    try:
        found = decode(text, Charts)
    except msgspec.DecodeError:
        return None
    return Charts(charts=found.charts[:200], most=max(0, found.most))


def drawn(feed: Feed, rank: int | None, chosen: Charts) -> dict[str, Any]:
    """Curves as a page receives them: `found` metrics have the text, of `count`; `full` says that there were
    more than the server keeps.
    """
    return {
        "kind": "metrics",
        "metrics": feed.charts(rank, chosen.charts, chosen.most),
        "found": len(feed.curves.names(rank, chosen.charts)),
        "count": len(feed.curves.names(rank)),
        "full": feed.curves.full,
    }


class View:
    """One page's view: it remembers what the page has."""

    def news(self) -> News:
        """What the page does not have yet."""
        raise NotImplementedError

    def ask(self, wanted: LineQuery) -> None:
        """The page wants other lines, where there are any."""

    def draw(self, charts: Charts) -> None:
        """The page wants other curves, where there are any."""

    @property
    def urgent(self) -> bool:
        """Whether there is more to send now."""
        return False


class RunsView(View):
    """The list of runs."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._seen = reading, -1

    def news(self) -> News:
        """The whole list, when any of it has changed."""
        _, version = self._reading.rows.get()
        if version == self._seen:
            return []
        self._seen = version
        return [{"kind": "runs", "runs": self._reading.nested()}]


class PlaceView(View):
    """The machine or the cluster."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._seen = reading, -1

    def news(self) -> News:
        """All of it, when it has changed."""
        found, version = self._reading.place.get()
        if version == self._seen:
            return []
        self._seen = version
        return [{"kind": "cluster", "cluster": found}]


class RunView(View):
    """One run: how it stands, its lines and its curves."""

    def __init__(self, reading: Reading, name: str) -> None:
        self._reading, self._name = reading, name
        self._feed: Feed | None = None
        self._wanted, self._charts = LineQuery(), USUAL
        self._selection: Selection | None = None
        self._asked, self._looked = False, 0.0
        self._sent_lines: object = None  # of the lines
        self._stands: object = None
        self._stands_next = 0.0
        self._values: tuple[object, ...] = ()
        self._drawn = 0.0
        self._come: dict[str, Any] | None = None  # how far it has come, as the page knows it

    def ask(self, wanted: LineQuery) -> None:
        """Send these lines: from a place on, or the last, and those that come."""
        self._wanted, self._asked = wanted, True

    def draw(self, charts: Charts) -> None:
        """Send these curves."""
        self._charts = charts

    @property
    def behind(self) -> bool:
        """Whether the page got nothing but lines for a while."""
        return time.monotonic() - self._looked >= _STALE

    @property
    def urgent(self) -> bool:
        """Whether there is more to send now."""
        return self._searches or self.behind

    @property
    def _searches(self) -> bool:
        return self._selection is not None and not self._selection.complete

    def news(self) -> News:
        """What is new of each. Lines that the page asks for come at once, before all else."""
        asked, self._asked = self._asked, False
        if self._feed is not None and (asked or (self._searches and not self.behind)):
            with self._feed.answering():
                return self._lines(self._feed)
        self._looked = time.monotonic()
        try:
            row = self._reading.row(self._name)
        except UnknownRun:
            if (status := self._reading.gathered(self._name)) is None:
                raise
            return self._elsewhere(status)
        feed = self._reading.feeds.of(row, lambda: self._reading.attach(row))
        if feed is not self._feed:
            self._feed, self._selection, self._stands, self._values = feed, None, None, ()
            self._come = None
        return [
            *self._how_it_stands(row, feed),
            *self._progress(row, feed),
            *self._lines(feed),
            *self._curves(feed),
        ]

    def _how_it_stands(self, row: RunSummary, feed: Feed) -> News:
        stands = (feed.events_seen, row.state, row.reason, feed.trouble, feed.complete, self._steps(row))
        if stands == self._stands or not feed.begun or time.monotonic() < self._stands_next:
            return []
        self._stands = stands
        self._stands_next = time.monotonic() + _EACH_STEP * (row.steps or 0)
        feed.forget_status()  # it may be from before what has happened
        return [{"kind": "run", "run": self._reading.run_of(feed, row)}]

    def _steps(self, row: RunSummary) -> object:
        """What the list has of its steps: a run that is listed can be led to."""
        return None if row.steps is None else self._reading.rows.get()[1]

    def _elsewhere(self, status: Status) -> News:
        if status == self._stands:
            return []
        self._feed, self._stands = None, status
        return [{"kind": "run", "run": self._reading.run_elsewhere(status)}]

    def _progress(self, row: RunSummary, feed: Feed) -> News:
        come = progress_data(feed.progress(), over=row.state in FINAL)
        if come == self._come:
            return []
        self._come = come
        return [{"kind": "progress", "progress": come}]

    def _lines(self, feed: Feed) -> News:
        wanted, selection = self._wanted, self._selection
        if selection is None or selection.wanted[:2] != wanted[:2]:
            selection = self._selection = Selection(feed.lines, wanted)
            self._sent_lines = None
        selection.look(unwanted=lambda: self._asked)
        first, end = selection.first, selection.end
        last = max(first, end - PAGE)
        start = last if wanted.at is None else min(max(first, wanted.at), last)
        shown = (start, min(end, start + PAGE), wanted.at)
        now = (*shown, first, end, feed.lines.count, selection.complete)
        if now == self._sent_lines:
            return []
        same = isinstance(self._sent_lines, tuple) and self._sent_lines[:3] == shown
        self._sent_lines = now
        return [
            {
                "kind": "lines",
                "at": wanted.at,
                "start": start,
                "lines": None if same else selection.rows(start, start + PAGE),  # as they were
                "first": first,
                "end": end,
                "count": feed.lines.count,
                "complete": selection.complete,
            }
        ]

    def _curves(self, feed: Feed) -> News:
        now, rank, chosen = time.monotonic(), self._wanted.rank, self._charts
        values = (feed.curves.count, rank, chosen)
        if values == self._values or (values[1:] == self._values[1:] and now - self._drawn < _CURVES):
            return []
        self._values, self._drawn = values, now if feed.curves.count else 0.0  # the first ones come at once
        return [drawn(feed, rank, chosen)]


def view_of(reading: Reading, page: str, name: str) -> View:
    """The view that a page asks for."""
    if page == "runs":
        return RunsView(reading)
    if page == "cluster":
        return PlaceView(reading)
    if page == "run":
        return RunView(reading, name)
    raise InvalidJob("page", page, "is none", hint="runs, run or cluster")


async def serve(socket: WebSocket, reading: Reading) -> None:
    """Tell a page what is new, until it goes."""
    try:
        view = view_of(reading, socket.query_params.get("page", "runs"), socket.query_params.get("name", ""))
    except InvalidJob as error:
        await socket.close(1008, error.message)
        return
    await socket.accept()
    asked = anyio.Event()

    async def listen() -> None:
        nonlocal asked
        while True:
            text = await socket.receive_text()
            if (charts := read_charts(text)) is not None:
                view.draw(charts)
                asked.set()
            elif (wanted := read_query(text)) is not None:
                view.ask(wanted)
                asked.set()

    async def tell() -> None:
        nonlocal asked
        sent: News = []
        while True:
            try:
                news = await run_in_threadpool(view.news)
            except EchelonError as error:
                unknown = isinstance(error, UnknownRun)
                news = [{"kind": "trouble", **error_data(error), "unknown": unknown}]
                if news == sent:
                    news = []
                else:
                    sent = news
            else:
                if sent:
                    news.append({"kind": "trouble", "error": "", "hint": ""})
                    sent = []
            for each in news:
                await socket.send_text(msgspec.json.encode(each).decode())
            with anyio.move_on_after(0 if view.urgent else _TICK):
                await asked.wait()
            asked = anyio.Event()

    async def beat() -> None:
        """Whatever a look at a cluster takes."""
        while True:
            await anyio.sleep(_BEAT)
            await socket.send_text('{"kind":"beat"}')

    async with anyio.create_task_group() as group:
        group.start_soon(_until_gone, beat, group.cancel_scope)
        group.start_soon(_until_gone, listen, group.cancel_scope)
        group.start_soon(_until_gone, tell, group.cancel_scope)


async def _until_gone(work: Any, scope: anyio.CancelScope) -> None:
    try:
        await work()
    except (
        WebSocketDisconnect,
        RuntimeError,
        OSError,
        KeyError,
    ):  # how starlette says that the page has gone
        scope.cancel()


class _LineRequest(msgspec.Struct):
    rank: int | None = None
    search: str = ""
    at: int | None = None


def read_query(text: str) -> LineQuery | None:
    """What a page asks for; None for anything else."""
    try:
        found = decode(text, _LineRequest)
    except msgspec.DecodeError:
        return None
    return LineQuery(rank=found.rank, search=found.search[:200], at=found.at)
