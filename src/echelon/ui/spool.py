"""The lines of a run that a page shows, on disk and not in memory: by number, by rank, and searched; and
those of them that one page wants, each at its place.

The file has no name and is gone with this process. In memory are 24 bytes for each line, and an outline of
each block of lines: their text without digits, each different one once. Programs print few lines that differ
in more than their numbers, so that most of the blocks without a text need not be read to know it.

To search a million lines takes longer than a person waits for an answer. So they are searched from the last
one back, a moment at a time. A line keeps its place meanwhile: those that were there when the search began
are at -1, -2 and so on, those that came since at 0, 1 and so on, as all are where nothing is searched for."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice, repeat
from typing import NamedTuple

from echelon.model.output.log import LogBlock, LogLine

LONGEST = 16_384  # characters of a line that a page shows
BLOCK = 4096  # lines that are searched at a time: from a multiple of this on, or less
_PENDING = 1 << 18  # bytes that are written at a time
_SPAN = 1 << 20  # bytes that are read at a time, or one line
_NUMBERS = b"0123456789.+-"
_LONGEST_OUTLINE = 8192  # bytes; a block whose lines differ more than that is read
Who = tuple[int | None, int, str, str]  # rank, worker, stream, step
PAGE = 200  # lines that a page has at a time
MOMENT = 0.04  # seconds that a page waits for earlier lines, before it gets what was found so far


class Row(NamedTuple):
    """A line as pages get it."""

    number: int
    at: float
    rank: int | None
    worker: int
    stream: str
    text: str
    part: str  # the step that has written it, of a run that is made of runs


class LineQuery(NamedTuple):
    """Which lines: of one rank, and with a text, whatever the case of its letters; `at` is the first one that
    a page shows, by its place among these (`Selection`), None for the last ones.
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
        self._outlines: list[bytes | None] = []

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

    def search(self, start: int, end: int, wanted: LineQuery) -> list[int]:
        """The numbers of the lines that are wanted, from one number to another of the same block."""
        with self._lock:
            return list(self._among(start, min(end, self.count), wanted))

    def rows(self, numbers: Iterable[int]) -> list[Row]:
        """Lines by their numbers, which rise."""
        with self._lock:
            return self._rows(list(numbers))

    def last(self, limit: int, wanted: LineQuery, before: int | None = None) -> list[Row]:
        """The last lines that are wanted, of those before a number."""
        with self._lock:
            end = self.count if before is None else min(max(0, before), self.count)
            found: list[int] = []
            while end > 0 and len(found) < limit:
                start = block_before(end)
                found[:0] = self._among(start, end, wanted)
                end = start
            return self._rows(found[-limit:])

    def since(self, first: int, limit: int, wanted: LineQuery) -> tuple[list[Row], int]:
        """The first lines that are wanted, from a number on, and the number to continue from."""
        with self._lock:
            start, end = max(0, first), self.count
            found: list[int] = []
            while start < end and len(found) < limit:
                stop = min(end, block_after(start))
                found += self._among(start, stop, wanted)
                start = stop
            if len(found) > limit:
                start = found[limit]
            return self._rows(found[:limit]), start

    def close(self) -> None:
        """Give the disk back."""
        with self._lock:
            self._file.close()

    def _add(self, like: LogLine, raw: list[bytes]) -> None:
        with self._lock:
            first, many = self.count, len(raw)
            self._pending += b"".join(raw)
            self._ends.extend(islice(accumulate(map(len, raw), initial=self._ends[-1]), 1, None))
            who = (like.rank, like.worker, like.stream, like.part)
            if who not in self._known:
                self._known[who] = len(self._whos)
                self._whos.append(who)
            self._who.extend(repeat(self._known[who], many))
            self._of_rank.setdefault(like.rank, array("I")).extend(range(first, first + many))
            self._at.extend(repeat(like.at, many))  # the last: it is what counts them
            if len(self._pending) > _PENDING:
                self._flush()
            while self.count >= (full := (len(self._outlines) + 1) * BLOCK):
                small = self._ends[full] - self._ends[full - BLOCK] <= _SPAN
                self._outlines.append(_outline(self._bytes(full - BLOCK, full)) if small else None)

    def _among(self, start: int, end: int, wanted: LineQuery) -> Iterator[int]:
        numbers: Iterator[int] = iter(range(start, end))
        if wanted.search:
            numbers = self._search(start, end, wanted.search)
        if wanted.rank is None:
            return numbers
        wrote, ours = self._who, {at for who, at in self._known.items() if who[0] == wanted.rank}
        return (number for number in numbers if wrote[number] in ours)

    def _search(self, start: int, end: int, text: str) -> Iterator[int]:
        sought = _raw(text)[:-1].lower()
        outline = self._outlines[start // BLOCK] if start // BLOCK < len(self._outlines) else None
        if outline is not None and sought.translate(None, _NUMBERS) not in outline:
            return
        while start < end:
            stop = max(start + 1, bisect_right(self._ends, self._ends[start] + _SPAN, start, end + 1) - 1)
            yield from _lines_with(sought, self._bytes(start, stop).lower(), start)
            start = stop

    def _rows(self, numbers: list[int]) -> list[Row]:
        """Those that are near to each other are read at once: each read lets other threads go first."""
        found: list[Row] = []
        at, ends = 0, self._ends
        while at < len(numbers):
            stop = bisect_right(
                numbers, ends[numbers[at]] + _SPAN, lo=at + 1, key=lambda each: ends[each + 1]
            )
            first = numbers[at]
            raw = self._bytes(first, numbers[stop - 1] + 1)
            for number in numbers[at:stop]:
                text = raw[ends[number] - ends[first] : ends[number + 1] - ends[first] - 1].decode()
                rank, worker, stream, part = self._whos[self._who[number]]
                found.append(Row(number, self._at[number], rank, worker, stream, text, part))
            at = stop
        return found

    def _bytes(self, start: int, end: int) -> bytes:
        self._flush()
        if self._file.closed:
            return b""
        return os.pread(self._file.fileno(), self._ends[end] - self._ends[start], self._ends[start])

    def _flush(self) -> None:
        if self._pending and not self._file.closed:
            written = 0
            while written < len(self._pending):
                written += self._file.write(self._pending[written:]) or 0
            self._pending.clear()


def block_before(end: int) -> int:
    """Where the block begins that ends with this line, or before it."""
    return max(0, (end - 1) // BLOCK * BLOCK)


def block_after(start: int) -> int:
    """Where the next block begins."""
    return (start // BLOCK + 1) * BLOCK


def _lines_with(sought: bytes, raw: bytes, number: int) -> Iterator[int]:
    """The numbers of the lines that have a text; `number` is that of the first."""
    line = 0  # where the line that is looked at begins
    at = raw.find(sought)
    while at >= 0:
        number += raw.count(b"\n", line, at)
        yield number
        line = raw.find(b"\n", at + len(sought) - 1) + 1
        number += 1
        at = raw.find(sought, line)


def _outline(raw: bytes) -> bytes | None:
    """What every text that a line has must be found in, both without digits."""
    lines = set(raw.lower().translate(None, _NUMBERS).split(b"\n"))
    return b"\n".join(lines) if sum(map(len, lines)) <= _LONGEST_OUTLINE else None


def _raw(text: str) -> bytes:
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} ... ({len(text) - LONGEST} more characters)"
    return text.replace("\n", " ").encode("utf-8", "backslashreplace") + b"\n"


class Selection:
    """What a page gets to see; one thread at a time uses it."""

    def __init__(self, spool: Spool, wanted: LineQuery) -> None:
        self._spool, self.wanted = spool, wanted
        self._found: Sequence[int] | None = None  # the numbers, where nothing has to be searched
        if not wanted.search:
            self._found = None if wanted.rank is None else spool.of_rank(wanted.rank)
        self._earlier, self._later = array("I"), array("I")
        self._low = self._high = spool.count  # between these all was searched

    @property
    def first(self) -> int:
        """The place of the first one that is known."""
        return -len(self._earlier)

    @property
    def end(self) -> int:
        """The place after the last one."""
        if self.wanted.search:
            return len(self._later)
        return self._spool.count if self._found is None else len(self._found)

    @property
    def complete(self) -> bool:
        """Whether all lines that there are were looked at."""
        return not self.wanted.search or self._low == 0

    def look(self, moment: float = MOMENT, unwanted: Callable[[], bool] = lambda: False) -> None:
        """Search the lines that have come, and for a moment the earlier ones: less, once there are as many as
        a page has, or when they are not wanted any more.
        """
        if not self.wanted.search:
            return
        count = self._spool.count
        while self._high < count:
            stop = min(count, block_after(self._high))
            self._later.extend(self._spool.search(self._high, stop, self.wanted))
            self._high = stop
        until = time.monotonic() + moment
        first = not self._earlier
        while self._low > 0:
            start = block_before(self._low)
            self._earlier.extend(reversed(self._spool.search(start, self._low, self.wanted)))
            self._low = start
            full = first and len(self._earlier) >= PAGE
            if full or unwanted() or time.monotonic() >= until:
                return

    def rows(self, start: int, end: int) -> list[Row]:
        """The lines from one place to another, as far as they are known."""
        places = range(max(start, self.first), min(end, self.end))
        if self.wanted.search:
            earlier, later = self._earlier, self._later
            numbers = [earlier[-place - 1] if place < 0 else later[place] for place in places]
            return self._spool.rows(numbers)
        return self._spool.rows(places if self._found is None else [self._found[place] for place in places])
