"""The lines of a run that a page shows, on disk and not in memory: by number, by rank, and searched.

The file has no name and is gone with this process. In memory are 24 bytes for each line."""

from __future__ import annotations

import os
import tempfile
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, repeat
from typing import NamedTuple

from echelon.model.output.log import LogBlock, LogLine

LONGEST = 16_384  # characters of a line that a page shows
BLOCK = 4096  # lines that are read at a time
_PENDING = 1 << 18  # bytes that are written at a time
Who = tuple[int | None, int, str]  # rank, worker, stream


class Row(NamedTuple):
    """A line as pages get it."""

    number: int
    at: float
    rank: int | None
    worker: int
    stream: str
    text: str


class Wanted(NamedTuple):
    """Which lines: of one rank, and with a text, whatever the case of its letters; `at` is the first one that
    a page shows, by its place among these (`selection.py`), None for the last ones.
    """

    rank: int | None = None
    search: str = ""
    at: int | None = None


class Spool:
    """Lines in the order in which they were read. Any thread may use it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0, prefix="echelon-ui-")  # noqa: SIM115 - until `close`
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._ends = array("Q", [0])  # where each line begins, and where the last one ends
        self._at = array("d")
        self._who = array("I")
        self._whos: list[Who] = []
        self._known: dict[Who, int] = {}  # where each is in that list
        self._of_rank: dict[int | None, array[int]] = {}

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self._at)

    def append(self, piece: LogLine | LogBlock) -> None:
        """Add a line, or several that a rank wrote at once."""
        if isinstance(piece, LogLine):
            self._add(piece, [_raw(piece.text)])
        else:
            self._add(piece.first, [_raw(piece.first.text), *map(_raw, piece.rest.split("\n"))])

    def of_rank(self, rank: int) -> Sequence[int]:
        """The numbers of a rank's lines; it grows with them."""
        with self._lock:
            return self._of_rank.setdefault(rank, array("I"))

    def search(self, start: int, end: int, wanted: Wanted) -> list[int]:
        """The numbers of the lines that are wanted, from one number to another; at most BLOCK at a time."""
        with self._lock:
            return list(self._among(start, min(end, self.count), wanted))

    def rows(self, numbers: Iterable[int]) -> list[Row]:
        """Lines by their numbers."""
        with self._lock:
            return [self._row(number) for number in numbers]

    def last(self, limit: int, wanted: Wanted, before: int | None = None) -> list[Row]:
        """The last lines that are wanted, of those before a number."""
        with self._lock:
            end = self.count if before is None else min(max(0, before), self.count)
            found: list[int] = []
            while end > 0 and len(found) < limit:
                start = max(0, end - BLOCK)
                found[:0] = self._among(start, end, wanted)
                end = start
            return [self._row(number) for number in found[-limit:]]

    def since(self, first: int, limit: int, wanted: Wanted) -> tuple[list[Row], int]:
        """The first lines that are wanted, from a number on, and the number to go on from."""
        with self._lock:
            start, end = max(0, first), self.count
            found: list[int] = []
            while start < end and len(found) < limit:
                stop = min(end, start + BLOCK)
                found += self._among(start, stop, wanted)
                start = stop
            if len(found) > limit:
                start = found[limit]
            return [self._row(number) for number in found[:limit]], start

    def close(self) -> None:
        """Give the disk back."""
        with self._lock:
            self._file.close()

    def _add(self, like: LogLine, raw: list[bytes]) -> None:
        with self._lock:
            first, many = self.count, len(raw)
            self._pending += b"".join(raw)
            self._ends.extend(islice(accumulate(map(len, raw), initial=self._ends[-1]), 1, None))
            who = (like.rank, like.worker, like.stream)
            if who not in self._known:
                self._known[who] = len(self._whos)
                self._whos.append(who)
            self._who.extend(repeat(self._known[who], many))
            self._of_rank.setdefault(like.rank, array("I")).extend(range(first, first + many))
            self._at.extend(repeat(like.at, many))  # the last: it is what counts them
            if len(self._pending) > _PENDING:
                self._flush()

    def _among(self, start: int, end: int, wanted: Wanted) -> Iterator[int]:
        numbers: Iterator[int] = iter(range(start, end))
        if wanted.search:
            numbers = self._search(start, end, wanted.search)
        if wanted.rank is None:
            return numbers
        wrote, ours = self._who, {at for who, at in self._known.items() if who[0] == wanted.rank}
        return (number for number in numbers if wrote[number] in ours)

    def _search(self, start: int, end: int, text: str) -> Iterator[int]:
        sought = _raw(text)[:-1].lower()
        raw = self._bytes(start, end).lower()
        number, line = start, 0  # of the line that was looked at last, and where it begins
        at = raw.find(sought)
        while at >= 0:
            number += raw.count(b"\n", line, at)
            yield number
            line = raw.find(b"\n", at + len(sought) - 1) + 1
            number += 1
            at = raw.find(sought, line)

    def _row(self, number: int) -> Row:
        rank, worker, stream = self._whos[self._who[number]]
        return Row(
            number=number,
            at=self._at[number],
            rank=rank,
            worker=worker,
            stream=stream,
            text=self._bytes(number, number + 1)[:-1].decode(),
        )

    def _bytes(self, start: int, end: int) -> bytes:
        self._flush()
        if self._file.closed:
            return b"\n" * (end - start)
        return os.pread(self._file.fileno(), self._ends[end] - self._ends[start], self._ends[start])

    def _flush(self) -> None:
        if self._pending and not self._file.closed:
            written = 0
            while written < len(self._pending):
                written += self._file.write(self._pending[written:]) or 0
            self._pending.clear()


def _raw(text: str) -> bytes:
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} ... ({len(text) - LONGEST} more characters)"
    return text.replace("\n", " ").encode("utf-8", "backslashreplace") + b"\n"
