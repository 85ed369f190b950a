"""Metrics as curves, of a bounded number of points however long a run is."""

from __future__ import annotations

import math
import threading
from array import array
from typing import Any

from echelon.metrics.series import Key, curves, first_ranks
from echelon.model.output.metric import Metric

_MOST_POINTS = 4000  # of a series; beyond it, every second one is dropped
_MOST_SERIES = 2000
MOST_CHARTS = 48  # that are shown, unless more are asked for


class _Series:
    """Points at equal distances, and the last one. A run may have hundreds of series, so a point is four
    numbers: a quarter of what a Metric takes.
    """

    def __init__(self) -> None:
        self._columns = [array("d"), array("d"), array("d"), array("d")]
        self._every = 1
        self._seen = 0
        self._last: Metric | None = None  # unless it is one of the points

    def add(self, metric: Metric) -> None:
        self._last = None if self._seen % self._every == 0 else metric
        if self._last is None:
            for column, number in zip(self._columns, _numbers(metric), strict=True):
                column.append(number)
            if len(self._columns[0]) > _MOST_POINTS:
                self._columns = [column[::2] for column in self._columns]
                self._every *= 2
        self._seen += 1

    def points(self) -> list[Metric]:
        found = [_metric(*numbers) for numbers in zip(*self._columns, strict=True)]
        return found if self._last is None else [*found, self._last]


class Curves:
    """What a run has measured. Any thread may use it."""

    def __init__(self) -> None:
        self.count = 0
        self.full = False  # whether there were more series than are kept
        self._series: dict[tuple[str, int | None, str | None, str | None], _Series] = {}
        self._lock = threading.Lock()

    def add(self, metric: Metric) -> None:
        """Add a value; of more series than can be shown, the first ones are."""
        key = (metric.name, metric.rank, metric.source, metric.part)
        with self._lock:
            series = self._series.get(key)
            if series is None:
                if len(self._series) >= _MOST_SERIES:
                    self.full = True
                    return
                series = self._series[key] = _Series()
            series.add(metric)
            self.count += 1

    def names(self, rank: int | None = None, search: str = "") -> list[str]:
        """The metrics of one rank, or of any, whose name has a text, whatever the case of its letters."""
        with self._lock:
            found = dict.fromkeys(name for name, of, *_ in self._series if rank is None or of == rank)
        return [name for name in found if search.lower() in name.lower()]

    def charts(
        self, rank: int | None = None, *, search: str = "", most: int = MOST_CHARTS
    ) -> list[dict[str, Any]]:
        """A chart for each of the first of those metrics: its axis, and the curves of one rank, or of the
        lowest that has it.
        """
        wanted = self.names(rank, search)[:most]
        found: dict[str, list[Key]] = {name: [] for name in wanted}
        with self._lock:
            keys = [
                Key("", *key) for key in self._series if key[0] in found and (rank is None or key[1] == rank)
            ]
            chosen = first_ranks(keys)
            points = {key: self._series[key[1:]].points() for key in chosen}
        for key in chosen:
            found[key.name].append(key)
        charts = []
        for name, each in found.items():
            axis, drawn = curves([(_label(key), points[key]) for key in each])
            charts.append(
                {
                    "name": name,
                    "axis": axis,
                    "curves": [{"label": one.label, "x": list(one.xs), "y": list(one.ys)} for one in drawn],
                    "last": points[each[0]][-1].value,
                    "ranks": sorted({number for key in each for number in chosen[key]}),
                }
            )
        return charts


def _label(key: Key) -> str:
    if key.part:
        return f"{key.part} {key.source}" if key.source else key.part
    return key.source or ("" if key.rank is None else f"rank {key.rank}")


def _numbers(metric: Metric) -> tuple[float, float, float, float]:
    """What a curve needs of a value; NaN for a place that is not known."""
    step, epoch, steps = metric.step, metric.epoch, metric.steps
    return (
        metric.value,
        math.nan if step is None else step,
        math.nan if epoch is None else epoch,
        math.nan if steps is None else steps,
    )


def _metric(value: float, step: float, epoch: float, steps: float) -> Metric:
    return Metric(
        name="",
        value=value,
        at=0.0,
        step=None if math.isnan(step) else int(step),
        epoch=None if math.isnan(epoch) else epoch,
        steps=None if math.isnan(steps) else int(steps),
    )
