"""From a run's output, in the pieces that engines give, to its metrics.

A reader remembers of each rank where its training stood last, and what it has begun to write: little, however
long the output is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from echelon.metrics.shape import AT_START, Shape, Stands, advance, learn
from echelon.metrics.text import (
    NOTHING,
    SEEN_JSON,
    ParsedLine,
    may_measure,
    parse_number,
    parse_with_slots,
    whole_number,
)
from echelon.model.output.log import LogBlock, LogLine
from echelon.model.output.metric import Metric
from echelon.model.output.metric_pattern import POSITION, MetricPattern, parse_metric_patterns

_SHAPES = 8  # of lines that are remembered at a time
_LEARNED = 256  # in all: each costs as much as hundreds of lines, and output may never repeat itself


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
