"""The lines of a run that a page shows, on disk and not in memory: by number, by rank, and searched.

The file has no name and is gone with this process. In memory are 25 bytes for each line."""

from __future__ import annotations

import os
import tempfile
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from echelon.model.log import LogLine

LONGEST = 16_384  # characters of a line that a page shows
_BLOCK = 4096  # lines that are read at a time
_PENDING = 1 << 18  # bytes that are written at a time
_NOBODY = -1  # the rank of a message of an agent


class Row(NamedTuple):
    """A line as pages get it."""

    number: int
    at: float
    rank: int | None
    worker: int
    stream: str
    text: str


class Wanted(NamedTuple):
    """Which lines: of one rank, and with a text, whatever the case of its letters."""

    rank: int | None = None
    search: str = ""


class Spool:
    """Lines in the order in which they were read. Any thread may use it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0, prefix="echelon-ui-")  # noqa: SIM115 - until `close`
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._ends = array("Q", [0])  # where each line begins, and where the last one ends
        self._at = array("d")
        self._ranks = array("i")
        self._workers = array("i")
        self._errors = bytearray()

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self._at)

    def append(self, line: LogLine) -> None:
        """Add a line."""
        text = line.text
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]} ... ({len(text) - LONGEST} more characters)"
        raw = text.replace("\n", " ").encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            self._pending += raw
            self._ends.append(self._ends[-1] + len(raw))
            self._ranks.append(_NOBODY if line.rank is None else line.rank)
            self._workers.append(line.worker)
            self._errors.append(line.stream == "stderr")
            self._at.append(line.at)
            if len(self._pending) > _PENDING:
                self._flush()

    def last(self, limit: int, wanted: Wanted, before: int | None = None) -> list[Row]:
        """The last lines that are wanted, of those before a number."""
        with self._lock:
            end = self.count if before is None else min(max(0, before), self.count)
            found: list[int] = []
            while end > 0 and len(found) < limit:
                start = max(0, end - _BLOCK)
                found[:0] = self._among(start, end, wanted)
                end = start
            return [self._row(number) for number in found[-limit:]]

    def since(self, first: int, limit: int, wanted: Wanted) -> tuple[list[Row], int]:
        """The first lines that are wanted, from a number on, and the number to go on from."""
        with self._lock:
            start, end = max(0, first), self.count
            found: list[int] = []
            while start < end and len(found) < limit:
                stop = min(end, start + _BLOCK)
                found += self._among(start, stop, wanted)
                start = stop
            if len(found) > limit:
                start = found[limit]
            return [self._row(number) for number in found[:limit]], start

    def close(self) -> None:
        """Give the disk back."""
        with self._lock:
            self._file.close()

    def _among(self, start: int, end: int, wanted: Wanted) -> Iterator[int]:
        numbers: Iterator[int] = iter(range(start, end))
        if wanted.search:
            numbers = self._search(start, end, wanted.search)
        if wanted.rank is None:
            return numbers
        ranks, rank = self._ranks, wanted.rank
        return (number for number in numbers if ranks[number] == rank)

    def _search(self, start: int, end: int, text: str) -> Iterator[int]:
        sought = text.encode("utf-8", "backslashreplace").lower()
        base, raw = self._ends[start], self._bytes(start, end).lower()
        at = raw.find(sought)
        while at >= 0:
            number = bisect_right(self._ends, base + at, start, end + 1) - 1
            yield number
            at = raw.find(sought, self._ends[number + 1] - base)

    def _row(self, number: int) -> Row:
        rank = self._ranks[number]
        return Row(
            number=number,
            at=self._at[number],
            rank=None if rank == _NOBODY else rank,
            worker=self._workers[number],
            stream="stderr" if self._errors[number] else "stdout",
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
