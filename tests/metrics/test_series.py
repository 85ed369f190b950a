"""Metrics put together: figures, and the axis along which they are drawn."""

from __future__ import annotations

import math

from echelon.metrics.series import Key, curves, first_ranks, summarise
from echelon.model.output.metric import Metric


def points(*places: tuple[int | None, float | None], steps: int | None = None) -> list[Metric]:
    return [
        Metric("loss", float(number), 0.0, 0, step, epoch, steps)
        for number, (step, epoch) in enumerate(places)
    ]


def test_figures_leave_out_what_is_no_number() -> None:
    metrics = [Metric("loss", value, 0.0, 0) for value in (math.nan, 2.0, -1.0, math.nan)]
    (figures,) = summarise("fm", metrics).values()
    assert (figures.count, figures.least, figures.greatest) == (4, -1.0, 2.0)
    assert math.isnan(figures.last.value)


def test_of_several_ranks_the_lowest_stands_for_all() -> None:
    metrics = [Metric("loss", 1.0, 0.0, rank) for rank in (3, 1, 2)] + [Metric("tb", 1.0, 0.0, source="tb")]
    assert first_ranks(summarise("fm", metrics)) == {
        Key("fm", "loss", 1, None): [1, 2, 3],
        Key("fm", "tb", None, "tb"): [],
    }


def test_the_axis_is_the_step_if_it_goes_on() -> None:
    axis, (curve,) = curves([("fm", points((1, None), (5, None)))])
    assert (axis, curve.xs, curve.ys) == ("step", [1.0, 5.0], [0.0, 1.0])


def test_steps_that_begin_again_in_every_epoch_are_parts_of_it() -> None:
    axis, (curve,) = curves([("fm", points((0, 1.0), (5, 1.0), (0, 2.0), (5, 2.0), steps=10))])
    assert (axis, curve.xs) == ("epoch", [1.0, 1.5, 2.0, 2.5])


def test_without_a_place_values_are_counted() -> None:
    axis, (curve,) = curves([("fm", points((None, None), (None, None)))])
    assert (axis, curve.xs) == ("value", [1.0, 2.0])
    assert curves([("a", points((1, None), (2, None))), ("b", points((None, None)))])[0] == "value"
    assert curves([("a", points((7, None), (7, None)))])[0] == "value"


def test_what_is_no_number_is_not_drawn() -> None:
    metrics = [
        Metric("loss", value, 0.0, 0, step) for step, value in enumerate((1.0, math.nan, math.inf, 2.0))
    ]
    _, (curve,) = curves([("fm", metrics)])
    assert (curve.xs, curve.ys) == ([0.0, 3.0], [1.0, 2.0])
