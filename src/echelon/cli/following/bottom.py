"""Lines at the bottom of a terminal that are painted again and again: how each worker stands.

Everything else that is printed stands above them: `hidden` takes them away for as long, and messages of other
threads (`say`) wait for each other there. Nothing is painted while a line above them is not ended, nor while
the shell has put this command into the background.

A thread paints a few times a second, so that much output is not slowed down, and what came last is always
shown. What the lines say is found in the lines and events that are read anyway, by several threads."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Self

from echelon.cli.printing import say
from echelon.cli.printing.say import tamed
from echelon.model.event import Event
from echelon.model.output.log import LogBlock, LogLine

_REST = 0.005  # seconds between two paintings, so that much output is not slowed down
_SEQUENCE = re.compile("\x1b\\[[0-9;:]*[mK]")
Key = tuple[int | None, str]
_EVERY = 0.2  # seconds between two paintings
_SOON = 0.01  # seconds after which lines are painted again that gave way to much output


class BottomLines:
    """One line for each key, in the order of the keys; on standard error."""

    def __init__(self) -> None:
        self._lines: dict[Key, tuple[str, str]] = {}
        self._lock = threading.RLock()
        self._painted: list[int] = []  # the widths of the lines that stand on the terminal now
        self._painted_at = 0.0
        self._open_line = False  # what stands above was not ended
        self.missing = threading.Event()  # the lines were not painted again: so much was printed

    def put(self, key: Key, head: str, text: str) -> None:
        """Show a line; without text, show it no more. The head may have colours, the text has none."""
        self.put_all({key: (head, text)})

    def put_all(self, lines: Mapping[Key, tuple[str, str]]) -> None:
        """The same for several lines, in one painting. What stands there already is not painted again."""
        with self._lock:
            before = dict(self._lines)
            for key, (head, text) in lines.items():
                if text := _SEQUENCE.sub("", tamed(text)).replace("\t", " ").replace("\r", "").strip():
                    self._lines[key] = (head, text)
                else:
                    self._lines.pop(key, None)
            if self._lines == before and (self._painted or not self._lines):
                return
            say.give_way = self.hidden if self._lines else contextlib.nullcontext
            _write(self._erasing() + self._painting())  # at once: a terminal shows what is written bit by bit

    @contextlib.contextmanager
    def hidden(self, *, open_line: bool = False) -> Iterator[None]:
        """Take the lines away while something else is printed; with `open_line` for longer, until what is
        printed next has ended the line.
        """
        with self._lock:
            _write(self._erasing())
            self._open_line = open_line
            try:
                yield
            finally:
                if time.monotonic() - self._painted_at >= _REST:
                    _write(self._painting())
                else:
                    self.missing.set()

    def paint(self) -> None:
        """Paint the lines if they are missing."""
        with self._lock:
            self.missing.clear()
            if not self._painted:
                _write(self._painting())

    def lose(self) -> None:
        """Something else was printed below the lines, as by a shell when this command was stopped: they stay
        where they are. A handler of signals may call it.
        """
        self._painted = []

    def close(self) -> None:
        """Show nothing any more."""
        with self._lock:
            self._lines.clear()
            say.give_way = contextlib.nullcontext
            _write(self._erasing())

    def _erasing(self) -> str:
        painted, self._painted = self._painted, []
        if not painted or not _in_foreground():
            return ""
        columns = max(1, _terminal_size().columns)
        # A terminal that was made narrower has broken them into more rows.
        rows = sum(max(1, -(-each // columns)) for each in painted)
        return f"\r\x1b[{rows - 1}A\x1b[J" if rows > 1 else "\r\x1b[J"

    def _painting(self) -> str:
        if self._open_line or not self._lines or not _in_foreground():
            return ""
        size = _terminal_size()
        lines = fit([self._lines[key] for key in sorted(self._lines, key=_order)], size.columns, size.lines)
        self._painted_at = time.monotonic()
        self._painted = [width(_SEQUENCE.sub("", line)) for line in lines]
        return "\n".join(lines)


def are_possible(*, to_stderr: bool = False) -> bool:
    """Whether lines can stand below what ranks print: all of it is on one terminal, whose cursor moves."""
    one_terminal = sys.stderr.isatty() and (to_stderr or sys.stdout.isatty())
    return one_terminal and os.environ.get("TERM", "dumb") != "dumb"


def fit(lines: list[tuple[str, str]], columns: int, rows: int) -> list[str]:
    """Heads and texts as lines that no terminal of that size breaks, at most half of its rows."""
    most = max(1, rows // 2)
    shown = lines if len(lines) <= most else lines[: most - 1]
    made = [head + cut(text, columns - 1 - width(_SEQUENCE.sub("", head))) for head, text in shown]
    if len(shown) < len(lines):
        made.append(cut(f"... and {len(lines) - len(shown)} more", columns - 1))
    return made


def cut(text: str, columns: int) -> str:
    """As much of a text as fits."""
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[: max(0, min(len(text) - 1, columns - 1))]
    return f"{text}…" if columns > 0 else ""


def width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _order(key: Key) -> tuple[int, str]:
    return (-1 if key[0] is None else key[0], key[1])


def _terminal_size() -> os.terminal_size:
    try:
        return os.get_terminal_size(sys.stderr.fileno())
    except OSError:
        return os.terminal_size((80, 24))


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:
        return True  # it is not the terminal that this command was started at, if it is one


def _write(text: str) -> None:
    if text:
        sys.stderr.write(text)
        sys.stderr.flush()


class PaintedLines(ABC):
    """They are painted while this context lasts."""

    def __init__(self) -> None:
        self.bottom = BottomLines()
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._paint, name="lines at the bottom", daemon=True)

    @abstractmethod
    def read(self, piece: LogLine | LogBlock) -> None:
        """Ranks have written this."""

    @abstractmethod
    def take(self, event: Event) -> None:
        """This has happened."""

    @abstractmethod
    def drawn(self) -> dict[Key, tuple[str, str]]:
        """The lines as they are now: heads and texts."""

    def __enter__(self) -> Self:
        self._handler = signal.signal(signal.SIGCONT, lambda _number, _frame: self.bottom.lose())
        self._thread.start()
        return self

    def __exit__(self, *how: object) -> None:
        self._left.set()
        self.bottom.missing.set()
        self._thread.join()
        with contextlib.suppress(OSError):  # the terminal is gone
            self.bottom.close()
        signal.signal(signal.SIGCONT, self._handler)

    def _paint(self) -> None:
        drawn: dict[Key, tuple[str, str]] = {}
        due = 0.0
        with contextlib.suppress(OSError):  # the terminal is gone; what prints lines notices it
            while not self._left.is_set():
                if self.bottom.missing.wait(max(0.0, due - time.monotonic())):
                    time.sleep(_SOON)
                    self.bottom.paint()
                if time.monotonic() < due:
                    continue
                due = time.monotonic() + _EVERY
                lines = self.drawn()
                self.bottom.put_all({**{key: ("", "") for key in drawn if key not in lines}, **lines})
                drawn = lines
