"""A tracker that does what a test says, and the points that it has got."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from echelon.model.output.metric import Metric
from echelon.model.status import Status
from echelon.tracking.sink import Away, Facts, Point, Rejected, Sent

FACTS = Facts(
    id="1",
    name="fm",
    created=1e9,
    parameters={},
    labels={},
    source="train.py",
    user="ann",
    commit="",
    results="",
)


class Tracker:
    """A Sink in memory. What it takes survives; `away` and `lost` are asked before each request."""

    def __init__(self) -> None:
        self.away: Callable[[], bool] = lambda: False
        self.lost: Callable[[], bool] = lambda: False  # it takes a request, and its answer does not come
        self.rejects: Callable[[Metric], bool] = lambda _: False
        self.points: list[Point] = []
        self.sizes: list[int] = []
        self.sent: dict[str, int] = {}
        self.opened = 0
        self.ended: list[Status] = []
        self.closed = False

    @property
    def name(self) -> str:
        return "tracker"

    def wants(self, _metric: Metric) -> bool:
        return True

    def open(self, _facts: Facts) -> Sent:
        self._check()
        self.opened += 1
        return dict(self.sent)

    def place(self) -> str:
        return "http://tracker/fm"

    def send(self, points: Sequence[Point], sent: Sent) -> None:
        self._check()
        if any(self.rejects(point.metric) for point in points):
            raise Rejected("bad name")
        self.points += points
        self.sizes.append(len(points))
        self.sent = dict(sent)
        if self.lost():
            raise Away("no answer")

    def end(self, status: Status) -> None:
        self._check()
        self.ended.append(status)

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.away():
            raise Away("it is away")


@pytest.fixture
def tracker() -> Tracker:
    return Tracker()
