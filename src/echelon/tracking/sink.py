"""What a tracker must be able to do, and what it is given: points, which are metrics that each have a number,
and a place on the axis that a tracker has. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from zlib import crc32

from echelon.model.output.metric import Metric
from echelon.model.status import Status
from echelon.values import frozen

Sent = Mapping[str, int]
"""How many points of each key a tracker has."""
MOST = 1000
"""Points of one `send`."""


class Away(Exception):
    """The tracker takes nothing now, and may later; the text is why."""


class Rejected(Exception):
    """The tracker will never take what it was given; the text is why."""


class Point(NamedTuple):
    """A value to be forwarded: the `number`th of those with the same key, at `step` of its curve."""

    key: str
    number: int
    metric: Metric
    step: int


@frozen
class Facts:
    """What a tracker gets of a run besides its metrics. `id` is the same for all starts of a run, and for
    no other run.
    """

    id: str
    name: str
    created: float
    parameters: Mapping[str, str]
    labels: Mapping[str, str]
    source: str  # what it runs
    user: str
    commit: str
    results: str


class Sink(Protocol):
    """A tracker. Only one thread calls it; every call but `wants` may raise Away, `send` also Rejected."""

    @property
    def name(self) -> str:
        """The tracker, and where it is; without credentials."""
        ...

    def wants(self, metric: Metric) -> bool:
        """Whether this metric is for the tracker."""
        ...

    def open(self, facts: Facts) -> Sent:
        """Find the tracker's run for this run, or make it; returns what it has already. Called again after
        every Away: whether the tracker took what was sent last is not known then.
        """
        ...

    def place(self) -> str:
        """Where a user finds the opened run."""
        ...

    def send(self, points: Sequence[Point], sent: Sent) -> None:
        """Hand over points, in their order, and remember how many there are with them, for their keys."""
        ...

    def end(self, status: Status) -> None:
        """Say how the run ended."""
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...


class Numbering:
    """Numbers the metrics of a run, all of them from its first line on: so a metric has the same number
    whenever the run is read.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._curves: dict[tuple[str, str], _Curve] = {}

    def point(self, metric: Metric) -> Point:
        """The next metric as a point."""
        key = key_of(metric)
        number = self._counts[key] = self._counts.get(key, 0) + 1
        curve = self._curves.get((key, metric.name))
        if curve is None:
            curve = self._curves[key, metric.name] = _Curve()
        return Point(key, number, metric, curve.step_of(metric))


def key_of(metric: Metric) -> str:
    """Whose metrics are counted together: those of one rank, or of one folder with files for TensorBoard."""
    if metric.source is not None:
        return f"~{crc32(f'{metric.part}/{metric.source}'.encode()):08x}"
    return f"{metric.part}/{metric.rank}" if metric.part else str(metric.rank)


class _Curve:
    """Where the values of one metric lie. Steps that begin anew in each epoch are counted on; those that go
    back without a new epoch, as after a restart, are what they are.
    """

    def __init__(self) -> None:
        self._count = 0
        self._step: int | None = None
        self._epoch: float | None = None
        self._counts_on = False

    def step_of(self, metric: Metric) -> int:
        self._count += 1
        step, epoch = metric.step, metric.epoch
        if step is None:
            return int(epoch) if epoch is not None and epoch == int(epoch) else self._count
        if self._step is not None and self._epoch is not None and epoch is not None:
            self._counts_on = self._counts_on or (step <= self._step and epoch > self._epoch)
        self._step, self._epoch = step, epoch
        if self._counts_on and metric.steps and epoch is not None and epoch >= 1 and step <= metric.steps:
            return (int(epoch) - 1) * metric.steps + step
        return step
