"""Curves drawn with plain characters: they can be read in any terminal, a pipe and a mail."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.metrics.series import Curve, bounded, number, value_range

MARKS = "*o+x#@%&"
REST = "."  # of curves that are too many to tell one from the other
RESTART = "^"
_HEIGHT = 14
_NARROWEST = 20  # columns of the field


def draw(
    title: str,
    axis: str,
    curves: Sequence[Curve],
    width: int,
    restarts: Sequence[float] = (),
    marks: Sequence[str] = MARKS,
) -> list[str]:
    """The lines of one chart; each curve has a mark of its own, and a legend if there are several: curves of
    the same label and mark are one there. Where the run was started again, the axis has a mark.
    """
    curves = [Curve(curve.label, bounded(curve.xs), bounded(curve.ys)) for curve in curves]
    xs = [x for curve in curves for x in curve.xs]
    ys = [y for curve in curves for y in curve.ys]
    if not ys:
        return [title, "  no value is a finite number"]
    low, high = value_range(ys)
    left, right = min(xs), max(xs)
    scale = [number(high), number((low + high) / 2), number(low)]
    margin = max(map(len, scale))
    columns = max(_NARROWEST, width - margin - 3)
    field: list[list[str]] = [[""] * columns for _ in range(_HEIGHT)]
    for at, curve in enumerate(curves):
        mark = marks[at % len(marks)]
        for column, value in _columns(curve, left, right, columns).items():
            row = round((high - value) / (high - low) * (_HEIGHT - 1))
            field[min(max(row, 0), _HEIGHT - 1)][column] += mark
    labels = {0: scale[0], (_HEIGHT - 1) // 2: scale[1], _HEIGHT - 1: scale[2]}
    lines = [title]
    for height, cells in enumerate(field):
        # Where curves meet, their marks take turns, so that none is hidden.
        shown = "".join(cell[column % len(cell)] if cell else " " for column, cell in enumerate(cells))
        lines.append(f"{labels.get(height, ''):>{margin}} |{shown}".rstrip())
    ruler = ["-"] * columns
    for x in bounded(restarts):
        ruler[_column(x, left, right, columns)] = RESTART
    lines.append(f"{'':>{margin}} +{''.join(ruler)}")
    begin, end = number(left), number(right)
    middle = axis.center(max(len(axis), columns - len(begin) - len(end)))
    lines.append(f"{'':>{margin}}  {begin}{middle}{end}".rstrip())
    if len(curves) > 1:
        legend = [f"{marks[at % len(marks)]} {curve.label}" for at, curve in enumerate(curves)]
        lines += [f"{'':>{margin}}  {each}" for each in dict.fromkeys(legend)]
    return lines


def _column(x: float, left: float, right: float, columns: int) -> int:
    return max(0, min(int((x - left) / (right - left) * columns), columns - 1)) if right > left else 0


def _columns(curve: Curve, left: float, right: float, columns: int) -> dict[int, float]:
    """The mean of the values that fall into each column."""
    sums: dict[int, tuple[float, int]] = {}
    for x, y in zip(curve.xs, curve.ys, strict=True):
        column = _column(x, left, right, columns)
        total, count = sums.get(column, (0.0, 0))
        sums[column] = total + y, count + 1
    return {column: total / count for column, (total, count) in sums.items()}
