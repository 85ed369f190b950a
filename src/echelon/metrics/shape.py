"""Lines that differ from one another in their numbers alone: once one is parsed, the others are read by one
pattern made of it, ten times as fast.

A training prints the same line a million times. The pattern has the line's text, with each used number as a
group, and any other digits (a clock) as so many digits; what it matches, `parse` would read the same way, so
this is never more than a shortcut. What does not fit it is parsed."""

from __future__ import annotations

import re
from itertools import pairwise

from echelon.metrics.text import Slot, is_finite, ratio, whole_number
from echelon.model.metric import Metric

_LONGEST = 1000  # characters of a line that is worth it
_DIGITS = re.compile(r"\d+")
Stands = tuple[int | None, float | None, int | None]
"""Where a training stands: step, epoch, steps in all."""
Read = tuple[Stands, int]
AT_START: Stands = (None, None, None)


class Shape:
    """What lines of one shape have in common."""

    def __init__(self, text: str, slots: list[Slot]) -> None:
        """Learn it from a line (without its end) that was parsed."""
        ordered = sorted(slots)
        names = [(slot.name_at, slot.name_at + len(slot.name)) for slot in ordered if slot.name]
        parts, at = [], 0
        for slot in ordered:
            parts += [_literal(text, at, slot.start, names), f"({slot.form})"]
            at = slot.end
        parts.append(_literal(text, at, len(text), names))
        self._match = re.compile("".join(parts) + r"(?:\n|\Z)").match
        uses = {slot.start: number for number, slot in enumerate(ordered)}
        self._values = [(slot.name, uses[slot.start]) for slot in slots if slot.use == "value"]
        self._wholes = {
            uses[before.start]: uses[slot.start] for before, slot in pairwise(slots) if slot.use == "whole"
        }
        place = {slot.use: uses[slot.start] for slot in slots}
        self._step, self._epoch, self._steps = place.get("step"), place.get("epoch"), place.get("steps")

    def read(self, text: str, start: int, stands: Stands, rank: int, at: float, into: list[Metric]) -> Read:
        """Read the lines from `start` on that are of this shape: their metrics, where the training stands
        after them, and where the first other line begins (beyond the end, if there is none).
        """
        match, values, wholes = self._match, self._values, self._wholes
        step_at, epoch_at, steps_at = self._step, self._epoch, self._steps
        while (found := match(text, start)) is not None:
            numbers = list(map(float, found.groups()))
            step = epoch = steps = None
            if step_at is not None and (step := whole_number(numbers[step_at])) is None:
                break
            if epoch_at is not None and not is_finite(epoch := numbers[epoch_at]):
                break
            if steps_at is not None:
                steps = int(numbers[steps_at])
            for part, whole in wholes.items():
                numbers[part] = ratio(numbers[part], numbers[whole])
            stands = step, epoch, steps = advance(stands, step, epoch, steps)
            for name, place in values:
                into.append(Metric(name, numbers[place], at, rank, step, epoch, steps))
            start = found.end()
            if start == len(text) and text[start - 1] != "\n":
                return stands, start + 1
            if start == len(text):
                break
        return stands, start


def advance(stands: Stands, step: int | None, epoch: float | None, steps: int | None) -> Stands:
    """Where a training stands after a line that says so much: the rest is as it was, but a new epoch has
    steps of its own.
    """
    if step is None and (epoch is None or epoch == stands[1]):
        step, steps = stands[0], stands[2]
    return step, stands[1] if epoch is None else epoch, steps


def learn(text: str, slots: list[Slot] | None) -> Shape | None:
    """The shape of a line that was parsed, if others can be read by it."""
    if not slots or len(text) > _LONGEST or "\n" in text or "\x1b" in text:
        return None
    return Shape(text, slots)


def _literal(text: str, start: int, end: int, names: list[tuple[int, int]]) -> str:
    """A pattern for what stands between two numbers: names as they are, other digits as so many digits."""
    parts, at = [], start
    for first, last in names:
        if start <= first < end:
            parts += [_loose(text[at:first]), re.escape(text[first:last])]
            at = last
    return "".join(parts) + _loose(text[at:end])


def _loose(text: str) -> str:
    parts, at = [], 0
    for digits in _DIGITS.finditer(text):
        parts += [re.escape(text[at : digits.start()]), rf"\d{{{len(digits[0])}}}"]
        at = digits.end()
    return "".join(parts) + re.escape(text[at:])
