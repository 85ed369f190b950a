"""Where the time went."""

from __future__ import annotations

from typing import Any

from echelon.model.event import Event
from echelon.ui.timeline import Timeline


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
