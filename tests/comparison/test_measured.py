"""Where metrics of runs part, and where they end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from echelon.comparison.measured import MetricDifference, compare_metrics, lowest_ranks
from echelon.model.output.metric import Metric


def series(values: Sequence[float], *, steps: bool = True, rank: int = 0, name: str = "loss") -> list[Metric]:
    return [
        Metric(name, value, at=float(at), rank=rank, step=10 * at if steps else None)
        for at, value in enumerate(values)
    ]


def one(*runs: list[Metric]) -> MetricDifference:
    (found,) = compare_metrics([lowest_ranks(run) for run in runs])
    return found


@pytest.mark.parametrize(
    ("runs", "axis", "parts_at", "common"),
    [
        ([[3, 2, 1], [3, 2, 0.5]], "step", 20, 3),
        ([[3, 2, 1], [3, 2 + 1e-9, 1]], "step", None, 3),
        ([[3, 2, 1], [3, 2]], "step", None, 2),
        ([[3, 2, 1], [3, 2, 1], [4, 2, 1]], "step", 0, 3),
        ([[0, 0], [0, 1e-30]], "step", 10, 2),
        ([[3, 2], []], "step", None, 0),
    ],
)
def test_from_where_on_they_differ(
    runs: list[list[float]], axis: str, parts_at: float | None, common: int
) -> None:
    found = one(*map(series, runs))
    assert (found.axis, found.parts_at, found.common) == (axis, parts_at, common)
    assert [None if each is None else each.last for each in found.figures] == [
        run[-1] if run else None for run in runs
    ]


def test_without_steps_the_number_of_the_value_is_the_place() -> None:
    found = one(series([3, 2, 1]), series([3, 2, 4], steps=False))
    assert (found.axis, found.parts_at, found.values_there) == ("value", 3, (1, 4))


def test_what_is_no_number_is_no_place_to_part_at() -> None:
    found = one(series([3, float("nan"), 1]), series([3, 2, 1]))
    assert (found.parts_at, found.common) == (None, 2)


def test_the_lowest_rank_counts_and_what_several_have_comes_first() -> None:
    first = series([1], name="only") + series([9], rank=1) + series([3], rank=0)
    found = compare_metrics([lowest_ranks(first), lowest_ranks(series([4], rank=2))])
    assert [each.name for each in found] == ["loss", "only"]
    assert [each and each.last for each in found[0].figures] == [3, 4]
    assert [each and each.last for each in found[1].figures] == [1, None]
