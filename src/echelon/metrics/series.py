"""Metrics put together: those of one name, rank and source, their figures, along which axis they lie,
and the numbers of that axis. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from echelon.metrics.text import is_finite
from echelon.model.output.metric import Metric

_LARGEST = 1e300


class Key(NamedTuple):
    """What metrics of one series have in common."""

    run: str
    name: str
    rank: int | None
    source: str | None
    part: str | None = None


class Figures:
    """Count, last, least and greatest of a series, however long it is."""

    def __init__(self, first: Metric) -> None:
        self.count = 0
        self.last = first
        self.least = self.greatest = first.value
        self.add(first)

    def add(self, metric: Metric) -> None:
        """Count one more; what is not a number is neither the least nor the greatest."""
        value = metric.value
        self.count += 1
        self.last = metric
        if value < self.least or self.least != self.least:
            self.least = value
        if value > self.greatest or self.greatest != self.greatest:
            self.greatest = value


def summarise(run: str, metrics: Iterable[Metric]) -> dict[Key, Figures]:
    """The figures of every series of a run."""
    found: dict[tuple[str, int | None, str | None, str | None], Figures] = {}  # a Key takes thrice as long
    for metric in metrics:
        key = (metric.name, metric.rank, metric.source, metric.part)
        if (figures := found.get(key)) is not None:
            figures.add(metric)
        else:
            found[key] = Figures(metric)
    return {Key(run, *key): figures for key, figures in found.items()}


def first_ranks(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Of the series that ranks have of the same metric, the one of the lowest rank, with all that have it."""
    groups: dict[tuple[str, str, str | None, str | None], list[Key]] = {}
    for key in keys:
        groups.setdefault((key.run, key.name, key.source, key.part), []).append(key)
    chosen = {}
    for group in groups.values():
        ranks = sorted(key.rank for key in group if key.rank is not None)
        chosen[min(group, key=lambda key: -1 if key.rank is None else key.rank)] = ranks
    return chosen


class Curve(NamedTuple):
    """Points to be drawn; all are finite."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]


def curves(series: Sequence[tuple[str, Sequence[Metric]]]) -> tuple[str, list[Curve]]:
    """The axis that fits all series, and their points along it: the step, if it is known and never goes back;
    the epoch, with the part of it that is done; or else the number of the value.
    """
    every = [points for _, points in series]
    name, places = "value", [list(map(float, range(1, len(points) + 1))) for points in every]
    for axis, place in (("step", _step), ("epoch", _epoch)):
        found = [[place(point) for point in points] for points in every]
        if all(_goes_on(each) for each in found):
            name, places = axis, [[x for x in each if x is not None] for each in found]
            break
    drawn = []
    for (label, points), xs in zip(series, places, strict=True):
        kept = [(x, point.value) for x, point in zip(xs, points, strict=True) if is_finite(point.value)]
        drawn.append(Curve(label, [x for x, _ in kept], [y for _, y in kept]))
    return name, drawn


def begins(points: Sequence[Metric], curve: Curve, starts: Sequence[float]) -> list[float]:
    """Where on a curve the first values after these moments are; a moment that no value came before or after
    is nowhere on it.
    """
    finite = [point for point in points if is_finite(point.value)]
    found = []
    for at in starts:
        after = next((number for number, point in enumerate(finite) if point.at >= at), 0)
        if after:
            found.append(curve.xs[after])
    return found


def _step(metric: Metric) -> float | None:
    return None if metric.step is None else float(metric.step)


def _epoch(metric: Metric) -> float | None:
    if metric.epoch is None or metric.step is None or not metric.steps or metric.step > metric.steps:
        return metric.epoch
    return metric.epoch + metric.step / metric.steps


def _goes_on(places: Sequence[float | None]) -> bool:
    """Whether every place is known, and not before the last one. A series of one place alone is a heap: its
    values have no order along that axis.
    """
    last = float("-inf")
    for place in places:
        if place is None or place < last:
            return False
        last = place
    return len(places) < 2 or places[0] != places[-1]


def bounded(values: Sequence[float]) -> list[float]:
    """The largest numbers cannot be added to each other."""
    return [min(max(value, -_LARGEST), _LARGEST) for value in values]


def value_range(values: Sequence[float]) -> tuple[float, float]:
    """From the least to the greatest; a constant stands in the middle."""
    low, high = min(values), max(values)
    if low >= high:
        room = abs(low) * 0.05 or 0.5
        return low - room, low + room
    return low, high


def number(value: float) -> str:
    """A value as an axis has it."""
    if not is_finite(value):
        return str(value)
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e7 else f"{value:.4g}"
