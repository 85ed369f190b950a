"""Numbers of a chart's axes, as every drawing of curves has them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.metrics.text import is_finite

_LARGEST = 1e300


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
