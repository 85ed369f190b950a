"""From a run's output, in the pieces that engines give, to its metrics.

A reader remembers of each rank where its training stood last, and what it has begun to write: little, however
long the output is.

A training prints the same line a million times, with other numbers: once one is parsed, the others are read
by one pattern made of it (`Shape`), ten times as fast. The pattern has the line's text, with each used number
as a group, and any other digits (a clock) as so many digits; what it matches, `parse` would read the same
way, so this is never more than a shortcut. What does not fit it is parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, repeat

from echelon.metrics.text import (
    COUNT,
    NOTHING,
    SEEN_JSON,
    ParsedLine,
    Slot,
    is_finite,
    may_measure,
    parse_number,
    parse_with_slots,
    ratio,
    whole_number,
)
from echelon.model.output.log import LogBlock, LogLine
from echelon.model.output.metric import Metric
from echelon.model.output.metric_pattern import POSITION, MetricPattern, parse_metric_patterns

_LONGEST = 1000  # characters of a line that is worth it
_TOGETHER = 8  # lines of one shape in a row, after which those that follow are read together
_DIGITS = re.compile(r"\d+")
_NONE = Metric("", 0.0, 0.0)  # where one is about to be
Stands = tuple[int | None, float | None, int | None]
"""Where a training stands: step, epoch, steps in all."""
Read = tuple[Stands, int]
AT_START: Stands = (None, None, None)
_SHAPES = 8  # of lines that are remembered at a time
_LEARNED = 256  # in all: each costs as much as hundreds of lines, and output may never repeat itself


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
        parts += [_literal(text, at, len(text), names), r"(?:\n|\Z)"]
        line = re.compile("".join(parts))
        self._match, self._find_all = line.match, line.findall
        parts[1:-1:2] = [f"(?:{slot.form})" for slot in ordered]
        self._match_many = re.compile(f"(?:{''.join(parts)})++").match
        uses = {slot.start: number for number, slot in enumerate(ordered)}
        self._width = len(ordered)
        counts = any(slot.use == "step" and slot.form == COUNT for slot in slots)
        self._count: Callable[[str], int | None] = int if counts else _count
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
        lines = 0
        while (found := match(text, start)) is not None:
            lines += 1
            if lines == _TOGETHER and (together := self._read_many(text, start, stands, rank, at, into)):
                return together
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
            if start == len(text):
                return stands, _after(text)
        return stands, start

    def _read_many(
        self, text: str, start: int, stands: Stands, rank: int, at: float, into: list[Metric]
    ) -> Read | None:
        """Read lines column by column, which takes half the time; None where what a line says of its place
        depends on the line before it, or is not a number that can be one.
        """
        if self._step is None and self._epoch is not None:
            return None
        found = self._match_many(text, start)
        assert found is not None  # one line was matched already
        rows = self._find_all(text, start, found.end())
        texts = list(zip(*rows, strict=True)) if self._width > 1 else [rows]
        step, epoch, steps = stands
        every_step: Iterable[int | None] = repeat(step)
        every_epoch: Iterable[float | None] = repeat(epoch)
        every_steps: Iterable[int | None] = repeat(steps)
        if self._step is not None:
            counted = list(map(self._count, texts[self._step]))
            if None in counted:
                return None
            every_step, step = counted, counted[-1]
            every_steps, steps = repeat(None), None
        if self._epoch is not None:
            epochs = list(map(float, texts[self._epoch]))
            if not all(map(is_finite, epochs)):
                return None
            every_epoch, epoch = epochs, epochs[-1]
        if self._steps is not None:
            all_steps = list(map(int, texts[self._steps]))
            every_steps, steps = all_steps, all_steps[-1]
        first, width = len(into), len(self._values)
        into.extend(repeat(_NONE, len(rows) * width))
        for number, (name, place) in enumerate(self._values):
            values = list(map(float, texts[place]))
            if place in self._wholes:
                values = list(map(ratio, values, map(float, texts[self._wholes[place]])))
            into[first + number :: width] = map(
                Metric,
                repeat(name),
                values,
                repeat(at),
                repeat(rank),
                every_step,
                every_epoch,
                every_steps,
            )
        end = found.end()
        return (step, epoch, steps), _after(text) if end == len(text) else end


def _count(text: str) -> int | None:
    return whole_number(float(text))


def _after(text: str) -> int:
    """Where to continue after the last line: beyond the end, if no newline ends it."""
    return len(text) if text.endswith("\n") else len(text) + 1


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


class MetricReader:
    """Finds metrics in output; `patterns` are the user's own, which then are the only rule."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = parse_metric_patterns(patterns)
        self._stands: dict[int, Stands] = {}
        self._begun: dict[tuple[int, int | None, str], str] = {}
        self._shapes: list[Shape] = []
        self._names: tuple[str, ...] = ()  # of the line that was parsed last
        self._learned = 0

    def read(self, piece: LogLine | LogBlock) -> list[Metric]:
        """The metrics in a piece of output, in its order."""
        line, rest = (piece, None) if isinstance(piece, LogLine) else (piece.first, piece.rest)
        rank = line.rank
        if rank is None:
            return []
        text = line.text
        key = (line.worker, rank, line.stream)
        if not line.progress:  # a bar's state is whole, whatever was begun
            if key in self._begun:
                text = self._begun.pop(key) + text
            if line.unfinished:
                self._begun[key] = text[:SEEN_JSON]
                return []
        found: list[Metric] = []
        self._read_text(text, rank, line.at, found)
        if rest is not None:
            self._read_text(rest, rank, line.at, found)
        return found

    def _read_text(self, text: str, rank: int, at: float, into: list[Metric]) -> None:
        """Read whole lines, with newlines between."""
        stands = self._stands.get(rank, AT_START)
        start, length = 0, len(text)
        while start <= length:
            for number, shape in enumerate(self._shapes):
                stands, end = shape.read(text, start, stands, rank, at, into)
                if end > start:
                    if number:
                        self._shapes.insert(0, self._shapes.pop(number))
                    break
            else:
                end = text.find("\n", start)
                end = length if end < 0 else end
                pairs, step, epoch, steps = self._parse(text[start:end])
                stands = step, epoch, steps = advance(stands, step, epoch, steps)
                for name, value in pairs:
                    into.append(Metric(name, value, at, rank, step, epoch, steps))
                end += 1
            start = end
        self._stands[rank] = stands

    def _parse(self, line: str) -> ParsedLine:
        if self._patterns:
            return apply(self._patterns, line)
        if not may_measure(line):
            return NOTHING
        found, slots = parse_with_slots(line)
        names = tuple([name for name, _ in found.pairs])
        if slots and names and names == self._names and self._learned < _LEARNED:
            self._learned += 1
            shape = learn(line, slots)
            if shape is not None:
                self._shapes = [shape, *self._shapes[: _SHAPES - 1]]
        self._names = names or self._names
        return found


def read_all(pieces: Iterable[LogLine | LogBlock], reader: MetricReader) -> Iterator[Metric]:
    """The metrics of all pieces."""
    for piece in pieces:
        yield from reader.read(piece)


def apply(patterns: Sequence[MetricPattern], line: str) -> ParsedLine:
    """What a user's patterns find in a line."""
    pairs: list[tuple[str, float]] = []
    place: dict[str, float] = {}
    for each in patterns:
        for match in each.pattern.finditer(line[: each.seen]):
            groups = match.groupdict()
            if "value" in groups:
                groups = {groups.get("name") or "": groups["value"]} | {
                    key: text for key, text in groups.items() if key in POSITION
                }
            for name, text in groups.items():
                value = parse_number(text.strip().rstrip("%,;:)]}").rstrip()) if text else None
                if value is None or not name:
                    continue
                if name in POSITION:
                    place.setdefault(name, value)
                else:
                    pairs.append((name, value))
    if not pairs and not place:
        return NOTHING
    steps = whole_number(place.get("steps", -1.0))
    return ParsedLine(tuple(pairs), whole_number(place.get("step", -1.0)), place.get("epoch"), steps)
