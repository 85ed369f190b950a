"""What a page is told over its WebSocket: all of it at first, and then what has changed."""

from __future__ import annotations

import time
from typing import Any, Protocol

import anyio
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from echelon.engines.decoding import decode
from echelon.errors import EchelonError, InvalidJob
from echelon.model.status import RunSummary
from echelon.ui.feed import Feed
from echelon.ui.pipelines import pipeline_data
from echelon.ui.reading import PAGE, Reading, error_data
from echelon.ui.spool import Wanted

_TICK = 0.25  # seconds between two looks for news
_CURVES = 1.0  # the same for curves
_PIPELINE = 1.0  # the same for the steps of a pipeline
_BEHIND = 5000  # lines; a page that is further behind gets the last ones anew

News = list[dict[str, Any]]


class View(Protocol):
    """One page's view: it remembers what the page has."""

    def news(self) -> News:
        """What the page does not have yet."""
        ...

    def ask(self, wanted: Wanted) -> None:
        """The page wants other lines."""
        ...


class RunsView:
    """The list of runs."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._seen = reading, (-1, -1)

    def news(self) -> News:
        """The whole list, when any of it has changed."""
        pipelines, theirs = self._reading.pipelines.get()
        _, version = self._reading.rows.get()
        if (version, theirs) == self._seen:
            return []
        self._seen = (version, theirs)
        return [{"kind": "runs", "runs": self._reading.runs(), "pipelines": pipelines}]

    def ask(self, wanted: Wanted) -> None:
        """There are no lines."""


class PipelineView:
    """A notebook's pipeline run: its graph, and how each step stands."""

    def __init__(self, reading: Reading, name: str) -> None:
        self._reading, self._name = reading, name
        self._looked, self._told = 0.0, b""

    def news(self) -> News:
        """All of it, when it has changed."""
        now = time.monotonic()
        if self._told and now - self._looked < _PIPELINE:
            return []
        self._looked = now
        found = pipeline_data(self._reading.pipeline(self._name))
        said = msgspec.json.encode({key: value for key, value in found.items() if key != "now"})
        if said == self._told:
            return []
        self._told = said
        return [{"kind": "pipeline", "pipeline": found}]

    def ask(self, wanted: Wanted) -> None:
        """There are no lines."""


class PlaceView:
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

    def ask(self, wanted: Wanted) -> None:
        """There are no lines."""


class RunView:
    """One run: how it stands, its lines and its curves."""

    def __init__(self, reading: Reading, name: str) -> None:
        self._reading, self._name = reading, name
        self._feed: Feed | None = None
        self._wanted = Wanted()
        self._line: int | None = None  # the next one; None: all are to be sent anew
        self._stands: object = None
        self._values, self._drawn = -1, 0.0

    def ask(self, wanted: Wanted) -> None:
        """Send the last of these lines, and those that come."""
        self._wanted, self._line = wanted, None
        self._values = -1

    def news(self) -> News:
        """What is new of each."""
        row = self._reading.row(self._name)
        feed = self._reading.feeds.of(row, lambda: self._reading.attach(row))
        if feed is not self._feed:
            self._feed, self._line, self._stands, self._values = feed, None, None, -1
        return [*self._how_it_stands(row, feed), *self._lines(feed), *self._curves(feed)]

    def _how_it_stands(self, row: RunSummary, feed: Feed) -> News:
        stands = (feed.events_seen, row.state, row.reason, feed.trouble, feed.complete)
        if stands == self._stands or not feed.begun:
            return []
        self._stands = stands
        feed.forget_status()  # it may be from before what has happened
        return [{"kind": "run", "run": self._reading.run_of(feed, row)}]

    def _lines(self, feed: Feed) -> News:
        count = feed.lines.count
        if self._line is None or count - self._line > _BEHIND:
            if count == 0 and self._line == 0:
                return []
            self._line = count
            lines = feed.lines.last(PAGE, self._wanted, count)
            return [{"kind": "lines", "anew": True, "lines": lines, "count": count}]
        if count == self._line:
            return []
        lines, self._line = feed.lines.since(self._line, _BEHIND, self._wanted)
        return [{"kind": "lines", "anew": False, "lines": lines, "count": self._line}]

    def _curves(self, feed: Feed) -> News:
        now = time.monotonic()
        if feed.curves.count == self._values or (self._values >= 0 and now - self._drawn < _CURVES):
            return []
        self._values, self._drawn = feed.curves.count, now
        return [{"kind": "metrics", "metrics": feed.curves.charts(self._wanted.rank)}]


def view_of(reading: Reading, page: str, name: str) -> View:
    """The view that a page asks for."""
    if page == "runs":
        return RunsView(reading)
    if page == "cluster":
        return PlaceView(reading)
    if page == "run":
        return RunView(reading, name)
    if page == "pipeline":
        return PipelineView(reading, name)
    raise InvalidJob("page", page, "is none", hint="runs, run, pipeline or cluster")


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
            wanted = read_wanted(await socket.receive_text())
            if wanted is not None:
                view.ask(wanted)
                asked.set()

    async def tell() -> None:
        nonlocal asked
        told: News = []
        while True:
            try:
                news = await run_in_threadpool(view.news)
            except EchelonError as error:
                news = [{"kind": "trouble", **error_data(error)}]
                if news == told:
                    news = []
                else:
                    told = news
            else:
                if told:
                    news.append({"kind": "trouble", "error": "", "hint": ""})
                    told = []
            for each in news:
                await socket.send_text(msgspec.json.encode(each).decode())
            with anyio.move_on_after(_TICK):
                await asked.wait()
            asked = anyio.Event()

    async with anyio.create_task_group() as group:
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


class _Asked(msgspec.Struct):
    rank: int | None = None
    search: str = ""


def read_wanted(text: str) -> Wanted | None:
    """What a page asks for; None for anything else."""
    try:
        found = decode(text, _Asked)
    except msgspec.DecodeError:
        return None
    return Wanted(rank=found.rank, search=found.search[:200])
