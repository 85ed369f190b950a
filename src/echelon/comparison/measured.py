"""What runs have measured of the same: from where on it differs, and where it ends. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from echelon.metrics.series import Figures, Key, curves, first_ranks
from echelon.model.output.metric import Metric
from echelon.values import frozen

_SAME = 1e-6  # of a value: machines differ in the last digits


class Measure(NamedTuple):
    """What is measured in several runs: a metric, of a step where runs have such, and of a file."""

    name: str
    part: str | None = None
    source: str | None = None


@frozen
class Figure:
    """The values of one run in short."""

    last: float
    least: float
    greatest: float
    count: int
    step: int | None = None  # of the last


@frozen
class MetricDifference:
    """One metric in all runs, each None where a run does not have it. `parts_at` is the first place on the
    axis (step, epoch, or the number of the value) where not all are the same; None if they never differ where
    all have a value.
    """

    name: str
    part: str | None
    source: str | None
    figures: tuple[Figure | None, ...]
    axis: str
    parts_at: float | None
    values_there: tuple[float, ...] = ()
    common: int = 0  # places at which all have a value


def lowest_ranks(metrics: Iterable[Metric]) -> dict[Measure, list[Metric]]:
    """The values of each metric on the lowest rank that has it."""
    found: dict[Key, list[Metric]] = {}
    for each in metrics:
        found.setdefault(Key("", each.name, each.rank, each.source, each.part), []).append(each)
    return {Measure(key.name, key.part, key.source): found[key] for key in first_ranks(found)}


def compare_metrics(runs: Sequence[Mapping[Measure, Sequence[Metric]]]) -> list[MetricDifference]:
    """Every metric that any run has; those that several have come first."""
    measures = dict.fromkeys(measure for run in runs for measure in run)
    ordered = sorted(measures, key=lambda measure: -sum(measure in run for run in runs))
    return [_compare(measure, [run.get(measure, ()) for run in runs]) for measure in ordered]


def _compare(measure: Measure, series: Sequence[Sequence[Metric]]) -> MetricDifference:
    axis, drawn = curves([("", points) for points in series if points])
    places = [dict(zip(curve.xs, curve.ys, strict=True)) for curve in drawn]  # of a place, the last value
    several = len(places) > 1
    common = sorted(set(places[0]).intersection(*places[1:])) if several else []
    parts_at = next((x for x in common if not _alike([each[x] for each in places])), None)
    return MetricDifference(
        name=measure.name,
        part=measure.part,
        source=measure.source,
        figures=tuple(_figure(points) if points else None for points in series),
        axis=axis,
        parts_at=parts_at,
        values_there=() if parts_at is None else tuple(each[parts_at] for each in places),
        common=len(common),
    )


def _alike(values: Sequence[float]) -> bool:
    return all(math.isclose(values[0], each, rel_tol=_SAME, abs_tol=0.0) for each in values)


def _figure(points: Sequence[Metric]) -> Figure:
    figures = Figures(points[0])
    for each in points[1:]:
        figures.add(each)
    last = figures.last
    return Figure(
        last=last.value,
        least=figures.least,
        greatest=figures.greatest,
        count=figures.count,
        step=last.step,
    )
