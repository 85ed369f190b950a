"""Points on their way to a tracker that is away, loses answers, rejects some, or is slow."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest
from tests.conftest import wait_until
from tests.tracking.conftest import FACTS, Tracker

from echelon.errors import Unreachable
from echelon.model.output.metric import Metric
from echelon.model.status import Status
from echelon.tracking import forwarding
from echelon.tracking.forwarding import Forwarding
from echelon.tracking.sink import MOST

END = Status(name="fm", uri="local://fm", state="succeeded")


def metrics(count: int, name: str = "loss") -> list[Metric]:
    return [Metric(name, float(step), 1e9 + step, rank=0, step=step) for step in range(count)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pauses, which are times of the product."""
    for name, seconds in (("_GATHER", 0.01), ("_FIRST", 0.01), ("_LONGEST", 0.02), ("_AT_THE_END", 0.01)):
        monkeypatch.setattr(forwarding, name, seconds)


def forward(tracker: Tracker, items: object, told: list[str] | None = None, **more: object) -> Forwarding:
    found = Forwarding(
        tracker,
        lambda: FACTS,
        lambda: items,  # type: ignore[arg-type, return-value]
        tell=(told if told is not None else []).append,
        **more,  # type: ignore[arg-type]
    )
    found.begin()
    return found


def test_all_of_it_in_batches_with_the_end(tracker: Tracker) -> None:
    told: list[str] = []
    outcome = forward(tracker, metrics(2500), told).finish(END)
    assert [point.metric.value for point in tracker.points] == [float(step) for step in range(2500)]
    assert max(tracker.sizes) <= 1000
    assert tracker.sent == {"0": 2500}
    assert (tracker.ended, tracker.closed, outcome.trouble) == ([END], True, "")
    assert told == ["metrics: http://tracker/fm"]


def test_what_it_has_is_not_sent_again(tracker: Tracker) -> None:
    forward(tracker, metrics(5)).finish(None)
    forward(tracker, metrics(8)).finish(END)
    assert [point.number for point in tracker.points] == list(range(1, 9))
    assert tracker.ended == [END]


def test_an_answer_that_does_not_come_sends_nothing_twice(tracker: Tracker) -> None:
    losses = iter([True, False, True])
    tracker.lost = lambda: next(losses, False)
    forward(tracker, metrics(3000)).finish(END)
    assert [point.number for point in tracker.points] == list(range(1, 3001))


def test_an_outage_is_told_once_and_bounds_the_memory(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_WAITING", 50)
    there = threading.Event()
    tries = itertools.count()
    tracker.away = lambda: next(tries) >= 0 and not there.is_set()
    read = 0

    def items() -> Iterator[Metric]:
        nonlocal read
        for metric in metrics(10_000):
            read += 1
            yield metric

    told: list[str] = []
    found = forward(tracker, items(), told)
    wait_until(lambda: next(tries) > 5, "several attempts")
    assert read <= 50 + MOST + 1
    assert told == ["tracker does not take metrics: it is away; they are kept, and sent later"]
    there.set()
    outcome = found.finish(END)
    assert len(tracker.points) == 10_000
    assert outcome.trouble == ""


def test_a_tracker_that_stays_away_does_not_keep_the_command(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_AWAY", 0.1)
    tracker.away = lambda: True
    outcome = forward(tracker, metrics(10)).finish(END)
    assert outcome.trouble == "it is away"
    assert (tracker.points, tracker.ended) == ([], [])


def test_a_tracker_that_hangs_does_not_either(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_SLOW", 0.1)
    hangs = threading.Event()
    tracker.away = lambda: not hangs.wait()
    outcome = forward(tracker, metrics(10)).finish(END, slow=0.1)
    assert outcome.trouble == "it takes too long"
    hangs.set()


def test_what_it_rejects_is_counted_and_the_rest_is_sent(tracker: Tracker) -> None:
    tracker.rejects = lambda metric: metric.value in (3.0, 700.0)
    outcome = forward(tracker, metrics(1000)).finish(END)
    assert len(tracker.points) == 998
    assert (outcome.rejected, outcome.why_rejected, outcome.trouble) == (2, "bad name", "")
    assert tracker.sent == {"0": 1000}


def test_output_that_cannot_be_read_any_more(tracker: Tracker) -> None:
    def items() -> Iterator[Metric]:
        yield from metrics(3)
        raise Unreachable("the cluster does not answer")

    outcome = forward(tracker, items()).finish(END)
    assert len(tracker.points) == 3
    assert outcome.trouble == "they cannot be read: the cluster does not answer"
    assert tracker.ended == [END]


def test_a_tracker_with_an_error_of_its_own_is_no_success(tracker: Tracker) -> None:
    def fails(_: Metric) -> bool:
        raise ZeroDivisionError("a bug")

    tracker.rejects = fails
    assert forward(tracker, metrics(1)).finish(END).trouble == "ZeroDivisionError: a bug"
    assert tracker.closed


def test_what_is_there_at_the_end_alone_comes_too(tracker: Tracker) -> None:
    late = [Metric("loss", 1.0, 0.0, source="tb", step=1)]
    forward(tracker, metrics(2), late=lambda: late).finish(END)
    assert [point.metric.source for point in tracker.points] == [None, None, "tb"]


def test_who_leaves_goes_on_no_more(tracker: Tracker) -> None:
    taken = threading.Event()

    def items() -> Iterator[Metric]:
        yield from metrics(1)
        taken.wait()
        yield from metrics(1)

    found = forward(tracker, items())
    wait_until(lambda: tracker.points, "the first point")
    found.leave()
    taken.set()
    wait_until(lambda: tracker.closed, "the tracker to be closed")
    assert (len(tracker.points), tracker.ended) == (1, [])
