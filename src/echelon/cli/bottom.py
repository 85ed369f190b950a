"""Lines at the bottom of a terminal that are painted again and again: the progress of each rank.

Everything else that is printed stands above them: `hidden` takes them away for as long, and messages of other
threads (`say`) wait for each other there."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterator

from echelon.cli import say
from echelon.cli.say import tamed

_REST = 0.05  # seconds between two paintings, so that much output is not slowed down
_SEQUENCE = re.compile("\x1b\\[[0-9;:]*[mK]")


class BottomLines:
    """One line for each key, in the order of the keys; on standard error."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int | None, str], tuple[str, str]] = {}
        self._lock = threading.RLock()
        self._painted = 0  # lines that stand on the terminal now
        self._painted_at = 0.0

    def put(self, key: tuple[int | None, str], head: str, text: str) -> None:
        """Show a line; without text, show it no more. The head may have colours, the text has none."""
        text = _SEQUENCE.sub("", tamed(text)).replace("\t", " ").replace("\r", "").strip()
        with self._lock:
            if text:
                self._lines[key] = (head, text)
            else:
                self._lines.pop(key, None)
            say.give_way = self.hidden if self._lines else contextlib.nullcontext
            _write(self._erasing() + self._painting())  # at once: a terminal shows what is written bit by bit

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the lines away while something else is printed."""
        if not self._lines and not self._painted:
            yield
            return
        with self._lock:
            _write(self._erasing())
            try:
                yield
            finally:
                if time.monotonic() - self._painted_at >= _REST:
                    _write(self._painting())

    def close(self) -> None:
        """Show nothing any more."""
        with self._lock:
            self._lines.clear()
            _write(self._erasing())
            say.give_way = contextlib.nullcontext

    def _erasing(self) -> str:
        painted, self._painted = self._painted, 0
        if not painted:
            return ""
        up = f"\x1b[{painted - 1}A" if painted > 1 else ""
        return f"\r{up}\x1b[J"

    def _painting(self) -> str:
        size = _terminal_size()
        lines = fit([self._lines[key] for key in sorted(self._lines, key=_order)], size.columns, size.lines)
        if lines:
            self._painted_at = time.monotonic()
            self._painted = len(lines)
        return "\n".join(lines)


def fit(lines: list[tuple[str, str]], columns: int, rows: int) -> list[str]:
    """Heads and texts as lines that no terminal of that size breaks, at most half of its rows."""
    most = max(1, rows // 2)
    shown = lines if len(lines) <= most else lines[: most - 1]
    made = [head + cut(text, columns - 1 - width(_SEQUENCE.sub("", head))) for head, text in shown]
    if len(shown) < len(lines):
        made.append(cut(f"... and {len(lines) - len(shown)} more ranks", columns - 1))
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


def _order(key: tuple[int | None, str]) -> tuple[int, str]:
    return (-1 if key[0] is None else key[0], key[1])


def _terminal_size() -> os.terminal_size:
    try:
        return os.get_terminal_size(sys.stderr.fileno())
    except OSError:
        return os.terminal_size((80, 24))


def _write(text: str) -> None:
    if text:
        sys.stderr.write(text)
        sys.stderr.flush()
