"""What a trial has reached."""

from __future__ import annotations

import math

import pytest

from echelon.errors import InvalidJob
from echelon.model.output.metric import Metric
from echelon.model.program import Objective
from echelon.sweeps.objective import objective_of, reached


def measured(*values: float, rank: int | None = 0, name: str = "loss") -> list[Metric]:
    return [Metric(name=name, value=value, at=float(at), rank=rank) for at, value in enumerate(values)]


@pytest.mark.parametrize(
    ("of", "goal", "value"),
    [
        ("last", "minimize", 3.0),
        ("best", "minimize", 1.0),
        ("best", "maximize", 5.0),
        ("mean:2", "minimize", 4.0),
        ("mean:99", "minimize", 3.0),
    ],
)
def test_the_value_of_a_trial(of: str, goal: str, value: float) -> None:
    minimize, maximize = ("loss", None) if goal == "minimize" else (None, "loss")
    objective = objective_of(minimize, maximize, of)
    assert objective is not None
    assert reached(measured(1.0, 5.0, math.nan, 3.0), objective) == value


def test_the_lowest_rank_that_has_it_counts_and_files_come_last() -> None:
    last = Objective(metric="loss")
    assert reached(measured(9.0, rank=None) + measured(2.0, rank=3) + measured(1.0, rank=5), last) == 2.0
    assert reached(measured(2.0, rank=3) + measured(1.0) + measured(7.0, rank=3), last) == 1.0
    assert reached(measured(9.0, rank=None), last) == 9.0
    assert reached(measured(9.0, name="accuracy"), last) is None
    assert reached(measured(math.inf, math.nan), last) is None


@pytest.mark.parametrize(
    ("minimize", "maximize", "of"),
    [("a", "b", "last"), ("a", None, "mean"), ("a", None, "mean:0"), ("a", None, "first")],
)
def test_an_objective_that_cannot_be_meant_is_refused(minimize: str, maximize: str | None, of: str) -> None:
    with pytest.raises(InvalidJob):
        objective_of(minimize, maximize, of)


def test_without_a_metric_there_is_no_objective() -> None:
    assert objective_of(None, None, "last") is None
