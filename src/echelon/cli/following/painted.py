"""Lines at the bottom of a terminal that say how a run stands, while it is followed.

A thread paints a few times a second, so that much output is not slowed down, and what came last is always
shown. What they say is found in the lines and events that are read anyway, by several threads."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from abc import ABC, abstractmethod
from typing import Self

from echelon.cli.following.bottom import BottomLines, Key
from echelon.model.event import Event
from echelon.model.output.log import LogBlock, LogLine

_EVERY = 0.2  # seconds between two paintings
_SOON = 0.01  # seconds after which lines are painted again that gave way to much output


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
