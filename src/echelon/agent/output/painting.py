"""What a program paints on a terminal, as lines: progress bars that overwrite themselves, one below another.

A stream is painted while rows of it may still change: one that was written over with a carriage return, and
those around it, to which the program moves the cursor (nested bars of tqdm write `\\n\\r...ESC[A`). A row is
final when the cursor has stayed below it for a while. Until then the painted rows are the stream's progress.
Pure; the caller has the clock."""

from __future__ import annotations

import re

SETTLES = 0.5  # seconds after which a row above the cursor is final
_MOST_ROWS = 24  # that are kept above the cursor; the oldest is final beyond
_LONGEST = 256 * 1024
_MOVES = re.compile(rb"\x1b(?:\[[0-9;?]*[A-HJSTfsu]|M)")
_CONTROL = re.compile(rb"\n|\x1b\[([0-9;?]*)([A-HJKSTfsu])|\x1bM")
_CUT = re.compile(rb"\x1b(?:\[[0-9;?]{0,16})?\Z")
_GRAPH = re.compile(rb"\|[^|]*\|")  # what grows between two strokes in a bar of tqdm


def is_painted(data: bytes) -> bool:
    """Whether output does more than to add lines."""
    return b"\r" in data or (b"\x1b" in data and _MOVES.search(data) is not None)


class _Row:
    __slots__ = ("cleared", "left_at", "painted", "returned", "text")

    def __init__(self, text: bytes = b"") -> None:
        self.text = text
        self.painted = False  # with a carriage return, or by moving to it
        self.returned = False  # the cursor is at its beginning: the next text replaces it
        self.cleared = False
        self.left_at: float | None = None  # since when the cursor is below it


class Painting:
    """The rows of one stream that may still change. `done` is true when there are none; then `rest` is the
    beginning of a line.
    """

    def __init__(self, begun: bytes = b"") -> None:
        self._rows = [_Row(begun)]
        self._at = 0
        self._cut = b""  # the beginning of a control sequence
        self._moved_at = float("-inf")  # when the cursor was moved up
        self._fed_at = float("-inf")
        self._settled = False  # nothing was written for a while

    @property
    def done(self) -> bool:
        """Whether nothing of it can change any more."""
        row = self._rows[0]
        # Bars are cleared for a moment when a program writes a line above them.
        return (
            len(self._rows) == 1 and not self._cut and (not row.painted or (_is_blank(row) and self._settled))
        )

    @property
    def rest(self) -> bytes:
        """What was written on the last row, when all is done."""
        return b"" if self._rows[0].painted else self._rows[0].text

    def feed(self, data: bytes, now: float) -> list[bytes]:
        """Take the next output; returns the lines that are final."""
        lines = self.settle(now)
        self._fed_at = now
        data = self._cut + data
        cut = _CUT.search(data)
        self._cut = cut.group() if cut else b""
        end = len(data) - len(self._cut)
        position = 0
        for found in _CONTROL.finditer(data, 0, end):
            self._put(data[position : found.start()])
            position = found.end()
            if found[0] == b"\n":
                self._go_down(now)
                self._take_oldest(lines, now)
            else:
                self._obey(found[2] or b"A", found[1] or b"", now)
        self._put(data[position:end])
        row = self._rows[self._at]
        if len(row.text) > _LONGEST:
            lines.append(row.text)
            row.text = b""
        return lines + self.settle(now)

    def settle(self, now: float) -> list[bytes]:
        """The lines that have become final by waiting."""
        self._settled = now - self._fed_at >= SETTLES
        count = 0
        for row in self._rows[: self._at]:
            if row.left_at is None or now - row.left_at < SETTLES:
                break
            count += 1
        lines: list[bytes] = []
        self._take(count, lines)
        while len(self._rows) > self._at + 1 and _is_blank(self._rows[-1]):
            self._rows.pop()
        return lines

    def waits_until(self) -> float | None:
        """When `settle` will have lines, or find that all is done, if nothing happens before."""
        row = self._rows[0]
        if self._at and row.left_at is not None:
            return row.left_at + SETTLES
        return self._fed_at + SETTLES if _is_blank(row) else None

    def close(self) -> list[bytes]:
        """The stream has ended: every row is final."""
        self._put(self._cut)
        self._cut = b""
        while len(self._rows) > self._at + 1 and _is_blank(self._rows[-1]):
            self._rows.pop()
        if not self._rows[-1].text:
            self._rows.pop()
        lines: list[bytes] = []
        self._take(len(self._rows), lines)
        self._rows, self._at = [_Row()], 0
        return lines

    def progress(self) -> bytes:
        """What is painted now, in one line; empty if nothing is."""
        texts = [row.text.strip() for row in self._rows if row.painted and not _is_blank(row)]
        if len(texts) > 1:
            texts = [_GRAPH.sub(b"|", text) for text in texts]
        return b"  ".join(texts)

    def _put(self, text: bytes) -> None:
        if not text:
            return
        row = self._rows[self._at]
        body = text.rstrip(b"\r")
        if body:
            _, overwritten, last = body.rpartition(b"\r")
            if overwritten or row.returned:
                row.text = last
            else:
                row.text += last
            row.returned = row.cleared = False
        if len(body) < len(text):
            row.returned = True
        row.painted = row.painted or b"\r" in text
        row.cleared = row.painted and bool(row.text) and not row.text.strip()

    def _obey(self, letter: bytes, numbers: bytes, now: float) -> None:
        first = numbers.split(b";")[0]
        count = min(int(first), 999) if first.isdigit() else 0
        row = self._rows[self._at]
        if letter in b"AF":
            self._moved_at = now
            self._at = max(0, self._at - max(1, count))
            for each in self._rows[self._at :]:
                each.left_at = None
                each.painted = True
        elif letter in b"BE":
            for _ in range(min(max(1, count), _MOST_ROWS)):
                self._go_down(now)
        elif letter == b"G" and count <= 1:
            row.returned = row.painted = True
        elif letter == b"K" and (count == 2 or (count == 0 and row.returned)):
            row.text, row.cleared = b"", True
        elif letter == b"J" and count == 0:
            del self._rows[self._at + 1 :]
        if letter in b"EF":
            self._rows[self._at].returned = True

    def _go_down(self, now: float) -> None:
        self._rows[self._at].left_at = now
        self._at += 1
        if self._at == len(self._rows):
            self._rows.append(_Row())
        else:
            self._rows[self._at].returned = True  # a newline begins at the left

    def _take_oldest(self, lines: list[bytes], now: float) -> None:
        """Rows that nothing was painted on are final at once; of the others, what is too much."""
        if now - self._moved_at >= SETTLES and not any(row.painted for row in self._rows[: self._at]):
            self._take(self._at, lines)
        elif self._at > _MOST_ROWS:
            self._take(self._at - _MOST_ROWS, lines)

    def _take(self, count: int, lines: list[bytes]) -> None:
        lines += [row.text for row in self._rows[:count] if not row.cleared]
        del self._rows[:count]
        self._at -= count


def _is_blank(row: _Row) -> bool:
    return not row.text.strip()
