"""What a tracker must be able to do, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from echelon.model.output.metric import Metric
from echelon.model.status import Status
from echelon.values import frozen


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


Sent = Mapping[str, int]
"""How many points of each key a tracker has."""


@frozen
class Facts:
    """What a tracker is told of a run besides its metrics. `id` is the same for all starts of a run, and for
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


MOST = 1000
"""Points of one `send`."""
