"""Curves drawn with plain characters: they can be read in any terminal, a pipe and a mail."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.metrics.series import Curve

MARKS = "*o+x#@%&"
_HEIGHT = 14
_NARROWEST = 20  # columns of the field
_LARGEST = 1e300


def draw(title: str, axis: str, curves: Sequence[Curve], width: int) -> list[str]:
    """The lines of one chart; each curve has a mark of its own, and a legend if there are several."""
    curves = [Curve(curve.label, _bounded(curve.xs), _bounded(curve.ys)) for curve in curves]
    xs = [x for curve in curves for x in curve.xs]
    ys = [y for curve in curves for y in curve.ys]
    if not ys:
        return [title, "  no value is a finite number"]
    low, high = _range(ys)
    left, right = min(xs), max(xs)
    scale = [_number(high), _number((low + high) / 2), _number(low)]
    margin = max(map(len, scale))
    columns = max(_NARROWEST, width - margin - 3)
    field: list[list[str]] = [[""] * columns for _ in range(_HEIGHT)]
    for number, curve in enumerate(curves):
        mark = MARKS[number % len(MARKS)]
        for column, value in _columns(curve, left, right, columns).items():
            row = round((high - value) / (high - low) * (_HEIGHT - 1))
            field[min(max(row, 0), _HEIGHT - 1)][column] += mark
    labels = {0: scale[0], (_HEIGHT - 1) // 2: scale[1], _HEIGHT - 1: scale[2]}
    lines = [title]
    for height, cells in enumerate(field):
        # Where curves meet, their marks take turns, so that none is hidden.
        shown = "".join(cell[column % len(cell)] if cell else " " for column, cell in enumerate(cells))
        lines.append(f"{labels.get(height, ''):>{margin}} |{shown}".rstrip())
    lines.append(f"{'':>{margin}} +{'-' * columns}")
    begin, end = _number(left), _number(right)
    middle = axis.center(max(len(axis), columns - len(begin) - len(end)))
    lines.append(f"{'':>{margin}}  {begin}{middle}{end}".rstrip())
    if len(curves) > 1:
        lines += [
            f"{'':>{margin}}  {MARKS[number % len(MARKS)]} {curve.label}"
            for number, curve in enumerate(curves)
        ]
    return lines


def _columns(curve: Curve, left: float, right: float, columns: int) -> dict[int, float]:
    """The mean of the values that fall into each column."""
    sums: dict[int, tuple[float, int]] = {}
    for x, y in zip(curve.xs, curve.ys, strict=True):
        column = min(int((x - left) / (right - left) * columns), columns - 1) if right > left else 0
        total, count = sums.get(column, (0.0, 0))
        sums[column] = total + y, count + 1
    return {column: total / count for column, (total, count) in sums.items()}


def _bounded(values: Sequence[float]) -> list[float]:
    """The largest numbers cannot be added to each other."""
    return [min(max(value, -_LARGEST), _LARGEST) for value in values]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From the least to the greatest; a constant stands in the middle."""
    low, high = min(values), max(values)
    if low >= high:
        room = abs(low) * 0.05 or 0.5
        return low - room, low + room
    return low, high


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e7 else f"{value:.4g}"
