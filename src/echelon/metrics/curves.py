"""Metrics as curves, of a bounded number of points however long a run is."""

from __future__ import annotations

import threading
from typing import Any

from echelon.metrics.series import Key, curves, first_ranks
from echelon.model.metric import Metric

_MOST_POINTS = 4000  # of a series; beyond it, every second one is dropped
_MOST_SERIES = 2000
_MOST_CHARTS = 48


class _Series:
    """Points at equal distances, and the last one."""

    def __init__(self) -> None:
        self._points: list[Metric] = []
        self._every = 1
        self._seen = 0
        self._last: Metric | None = None

    def add(self, metric: Metric) -> None:
        if self._seen % self._every == 0:
            self._points.append(metric)
            if len(self._points) > _MOST_POINTS:
                self._points = self._points[::2]
                self._every *= 2
        self._seen += 1
        self._last = metric

    def points(self) -> list[Metric]:
        if self._last is None or self._points[-1] is self._last:
            return list(self._points)
        return [*self._points, self._last]


class Curves:
    """What a run has measured. Any thread may use it."""

    def __init__(self) -> None:
        self.count = 0
        self._series: dict[Key, _Series] = {}
        self._lock = threading.Lock()

    def add(self, metric: Metric) -> None:
        """Add a value; of more series than can be shown, the first ones are."""
        key = Key("", metric.name, metric.rank, metric.source)
        with self._lock:
            series = self._series.get(key)
            if series is None:
                if len(self._series) >= _MOST_SERIES:
                    return
                series = self._series[key] = _Series()
            series.add(metric)
            self.count += 1

    def charts(self, rank: int | None = None) -> list[dict[str, Any]]:
        """A chart for each metric: its axis, and the curves of one rank, or of the lowest that has it."""
        with self._lock:
            keys = [key for key in self._series if rank is None or key.rank == rank]
            chosen = first_ranks(keys)
            points = {key: self._series[key].points() for key in chosen}
        found: dict[str, list[Key]] = {}
        for key in chosen:
            found.setdefault(key.name, []).append(key)
        charts = []
        for name, each in list(found.items())[:_MOST_CHARTS]:
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
    return key.source or ("" if key.rank is None else f"rank {key.rank}")
