"""One value of a metric: what a rank printed, or wrote to a file for TensorBoard, at one moment."""

from __future__ import annotations

import msgspec


class Metric(msgspec.Struct, frozen=True, gc=False):
    """One value. `step` and `epoch` are the ones that its line gives, else the last ones that its rank gave
    before; `steps` are how many steps there are, in the epoch where there is one. `rank` is None, and
    `source` the folder among the results, for what stands in a file. `part` is the step that has measured it,
    of a run that is made of runs.

    A struct, and no dataclass as other values: a run may have millions of them, and one takes a tenth of the
    time to make."""

    name: str
    value: float
    at: float
    rank: int | None = None
    step: int | None = None
    epoch: float | None = None
    steps: int | None = None
    source: str | None = None
    part: str | None = None


COLUMNS = ("time", "rank", "step", "epoch", "name", "value", "source")
"""What a table of metrics has of each, in this order; before them `part`, of a run that is made of runs."""


def as_row(metric: Metric) -> tuple[float, int | None, int | None, float | None, str, float, str | None]:
    """A metric as a row with these columns."""
    return (
        metric.at,
        metric.rank,
        metric.step,
        metric.epoch,
        metric.name,
        metric.value,
        metric.source,
    )
