"""One feed for all who look at a run: followed once, kept when the run ends, made anew when it is another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.conftest import wait_until
from tests.ui.client import engine_with, training

from echelon.engines.memory.script import Act
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.ui import feed as feeds
from echelon.ui import live
from echelon.ui.feed import Feed, Feeds, Timeline
from echelon.ui.live import RunView
from echelon.ui.reading import Reading
from echelon.ui.spool import LineQuery


def phases(*events: tuple[Any, float, int | None]) -> list[tuple[str, float, float | None]]:
    timeline = Timeline()
    for kind, at, worker in events:
        timeline.add(Event(kind=kind, at=at, worker=worker))
    return [(phase.name, phase.start, phase.end) for phase in timeline.phases]


def test_a_run_that_waits_restarts_and_ends() -> None:
    assert phases(
        ("recorded", 0.0, None),
        ("queued", 1.0, None),
        ("queued", 2.0, None),
        ("admitted", 5.0, None),
        ("worker-started", 6.0, 0),
        ("worker-started", 6.5, 1),
        ("worker-running", 7.0, 0),
        ("worker-running", 8.0, 1),
        ("failed", 9.0, None),
        ("restarting", 9.5, None),
        ("worker-running", 10.0, 0),
        ("worker-running", 10.5, 1),
        ("verdict", 20.0, None),
        ("finished", 21.0, None),
    ) == [
        ("recorded", 0.0, 1.0),
        ("queued", 1.0, 5.0),
        ("placed", 5.0, 6.0),
        ("starting", 6.0, 8.0),
        ("training", 8.0, 9.5),
        ("restarting", 9.5, 10.0),
        ("training", 10.0, 20.0),
        ("ending", 20.0, 21.0),
    ]


def test_an_image_on_its_way_is_a_phase_of_its_own() -> None:
    timeline = Timeline()
    for event in (
        Event(kind="admitted", at=1.0),
        Event(kind="waiting", at=2.0, trouble="silent"),
        Event(kind="waiting", at=3.0, trouble="pulling", reason="image big is being pulled"),
        Event(kind="worker-started", at=90.0, worker=0),
        Event(kind="worker-running", at=91.0, worker=0),
    ):
        timeline.add(event)
    assert [phase.name for phase in timeline.phases] == [
        "placed",
        "waiting",
        "pulling",
        "starting",
        "training",
    ]
    assert timeline.phases[2].reason == "image big is being pulled"


def test_one_that_goes_on_has_an_open_phase() -> None:
    assert phases(("recorded", 0.0, None), ("stopping", 1.0, None)) == [
        ("recorded", 0.0, 1.0),
        ("stopping", 1.0, None),
    ]


def test_all_share_it_and_an_old_list_makes_no_second_one() -> None:
    reading = Reading(engine_with(fm=training))
    feed = reading.feed("fm")
    wait_until(lambda: feed.complete, "the feed to be complete")
    assert reading.feed("fm") is feed
    row = reading.row("fm")
    stale = replace(row, state="running")  # from before the end
    assert reading.feeds.of(stale, lambda: reading.attach(row)) is feed
    another = replace(row, created=row.created + 1)
    assert reading.feeds.of(another, lambda: reading.attach(row)) is not feed
    reading.feeds.close()


def test_how_far_a_run_has_come() -> None:
    act = Act(lines=("Epoch 2/4", "5/10 ━━━ 1s 100ms/step - loss: 0.5 - <b>: 1"), lasts=True)
    reading = Reading(engine_with(fm=act))
    view = RunView(reading, "fm")
    told: list[dict] = []

    def knows(text: str) -> bool:
        told.extend(each["progress"] for each in view.news() if each["kind"] == "progress")
        return bool(told) and told[-1] == {"done": 0.375, "rank": 0, "text": text}

    wait_until(lambda: knows("epoch 2/4, 5/10, 37%, 10/s, 2 s left, loss 0.5"), "the page to be told")
    assert reading.run("fm")["status"]["progress"]["steps"] == 10
    reading.attach(reading.row("fm")).stop()
    wait_until(lambda: knows("epoch 2/4, 5/10, 37%, loss 0.5"), "no time left")
    reading.feeds.close()


def test_only_so_many_are_kept() -> None:
    reading = Reading(engine_with(fm=training))
    row, feeds = reading.row("fm"), Feeds()
    first = feeds.of(row, lambda: reading.attach(row))
    for number in range(1, 20):
        feeds.of(replace(row, created=float(number)), lambda: reading.attach(row))
    assert len(feeds._feeds) == 8
    assert feeds.of(row, lambda: reading.attach(row)) is not first
    feeds.close()


def test_a_page_is_told_what_it_lacks_and_no_more() -> None:
    engine = engine_with(fm=Act(lines=("step=1 loss=0.5", "hello"), lasts=True))
    reading = Reading(engine)
    view = RunView(reading, "fm")
    told: list[dict] = []

    def has_all() -> bool:
        news = view.news()
        told.extend(news)
        lines = [each["lines"] for each in told if each["kind"] == "lines" and each["lines"]]
        return (
            not news
            and bool(lines)
            and len(lines[-1]) == 4
            and {"run", "metrics"} <= {each["kind"] for each in told}
        )

    wait_until(has_all, "the page to have it all")
    assert next(each for each in told if each["kind"] == "run")["run"]["phases"]
    reading.attach(reading.row("fm")).stop()

    def knows_the_end() -> bool:
        return any(
            each["kind"] == "run" and each["run"]["status"]["state"] == "stopped" for each in view.news()
        )

    wait_until(knows_the_end, "the page to know the end")
    reading.feeds.close()


def test_lines_that_are_asked_for_come_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(engine_with(fm=Act(lines=("step=1 loss=0.5", "hello"), lasts=True)))
    view = RunView(reading, "fm")
    wait_until(lambda: view.news() == [] and reading.feed("fm").lines.count == 4, "the page to have it all")
    view.ask(LineQuery(search="HELLO"))
    [told] = view.news()
    assert (told["kind"], told["complete"]) == ("lines", True)
    assert [row.text for row in told["lines"]] == ["hello", "hello"]
    assert not view.urgent
    monkeypatch.setattr(live, "_STALE", 0.0)  # that was long ago
    view.ask(LineQuery(rank=0))
    assert [each["kind"] for each in view.news()] == ["lines"]
    assert view.urgent
    assert [each["kind"] for each in view.news()] == ["metrics"]  # of that rank
    reading.attach(reading.row("fm")).stop()
    reading.feeds.close()


def test_the_first_answer_has_what_had_happened_however_slowly_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "_QUIET", 0.0)  # a slow machine: any pause in reading is longer
    monkeypatch.setattr(feeds, "_PATIENCE", 600.0)
    act = Act(lines=("step=1 loss=0.5",))
    reading = Reading(engine_with(ended=act, running=replace(act, lasts=True)))
    assert [phase["end"] is None for phase in reading.run("ended")["phases"]][-1:] == [False]
    assert [chart["name"] for chart in reading.metrics("ended", None)] == ["loss"]
    assert reading.events("running")
    reading.attach(reading.row("running")).stop()
    reading.feeds.close()


class Talking:
    """A run that writes one line, and two more when it is told to."""

    name = "fm"

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def raw_logs(self, **_how: bool) -> Iterator[LogLine]:
        for number in range(3):
            yield LogLine(text=f"line {number}", at=1.5, worker=0, rank=0)
            self.go_on.wait()

    def observe(self, **_how: bool) -> Iterator[Any]:
        return iter(())

    def job(self) -> Job:
        return Job(name="fm", command=("x",))

    def usage(self) -> None:
        """Nobody asks who is slow."""


def test_what_comes_is_read_after_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_YIELD", 600.0)
    run = Talking()
    feed = Feed(cast("Run", run))
    wait_until(lambda: feed.lines.count == 1, "the first line")
    with feed.answering(), feed.answering():
        run.go_on.set()
        wait_until(lambda: feed.lines.count == 2, "the line that was on its way")
        assert not feed.complete
    wait_until(lambda: feed.lines.count == 3 and feed.complete, "the rest")
    feed.close()
