"""Curves of plain characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.cli.printing.plot import MARKS, draw
from echelon.metrics.series import Curve


def test_a_chart() -> None:
    shown = draw("loss", "step", [Curve("fm", [0.0, 5.0, 10.0], [1.0, 0.5, 0.0])], 40)
    assert shown[0] == "loss"
    assert shown[1] == "  1 |*"
    assert shown[-3].startswith("  0 |")
    assert shown[-3].endswith("*")
    assert shown[-2] == "    +" + "-" * 34
    assert shown[-1].split() == ["0", "step", "10"]


def test_several_curves_have_marks_and_a_legend_and_hide_no_other() -> None:
    xs = [float(x) for x in range(100)]
    shown = draw("loss", "step", [Curve("a", xs, xs), Curve("b", xs, xs)], 80)
    assert [line.split() for line in shown[-2:]] == [["*", "a"], ["o", "b"]]
    field = "".join(shown[1:-4])
    assert abs(field.count("*") - field.count("o")) <= 2
    assert field.count("o") > 10


def test_without_finite_values_there_is_a_sentence() -> None:
    assert draw("loss", "step", [Curve("fm", [], [])], 80)[1] == "  no value is a finite number"


@pytest.mark.parametrize("value", [0.0, 5.0, -1e300, 1.7e308, 5e-324])
def test_a_constant_is_in_the_middle(value: float) -> None:
    assert sum("*" in line for line in draw("a", "step", [Curve("fm", [1.0, 2.0], [value] * 2)], 60)) == 1


FINITE = st.floats(allow_nan=False, allow_infinity=False)
POINTS = st.lists(st.tuples(FINITE, FINITE), max_size=20).map(
    lambda points: Curve("fm", [x for x, _ in sorted(points)], [y for _, y in points])
)


@given(st.lists(POINTS, min_size=1, max_size=12), st.integers(1, 300))
def test_any_curves_fit_into_the_width(curves: list[Curve], width: int) -> None:
    lines = draw("a", "step", curves, width)
    if any(curve.ys for curve in curves):
        assert all(len(line) <= max(width, 60) for line in lines[1:17])
        assert set("".join(line.partition("|")[2] for line in lines[1:15])) <= {*MARKS, " "}
