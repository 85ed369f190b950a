"""What was printed last of each rank: a message about a line comes after it, and does not repeat it."""

from __future__ import annotations

import re
import threading
import time

_KEPT = 16 * 1024  # characters of a rank
_NEAR = 40  # lines that may have been printed since, for a line to be in sight still
_SEQUENCE = re.compile("\x1b\\[[0-9;:]*[mK]|\r")


class Recent:
    """The end of every rank's output, as it was printed."""

    def __init__(self) -> None:
        self._texts: dict[int | None, str] = {}
        self._printed_at: dict[int | None, int] = {}  # how many lines were printed then, of all ranks
        self._lines = 0
        self._lock = threading.Lock()

    def note(self, rank: int | None, text: str, *, seen: bool = True) -> None:
        """Text of a rank was printed: where messages are `seen` too, or elsewhere (`> file`)."""
        with self._lock:
            self._texts[rank] = (self._texts.get(rank, "") + text)[-_KEPT:]
            if seen:
                self._lines += text.count("\n")
                self._printed_at[rank] = self._lines

    def in_sight(self, rank: int | None, line: str) -> bool:
        """Whether a rank's line was printed, and little since."""
        with self._lock:
            near = rank in self._printed_at and self._lines - self._printed_at[rank] <= _NEAR
            return near and bool(line.strip()) and _plain(line) in _plain(self._texts.get(rank, ""))

    def wait_for(self, rank: int | None, line: str, patience: float) -> None:
        """Wait until a rank's line has been printed, the last of a rank that has ended. The rank may end with
        the same line again, and then that one is waited for.
        """
        deadline = time.monotonic() + patience
        while not self._take(rank, line) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _take(self, rank: int | None, line: str) -> bool:
        with self._lock:
            _, found, after = _plain(self._texts.get(rank, "")).partition(_plain(line))
            if found:
                self._texts[rank] = after
            return bool(found)


def _plain(text: str) -> str:
    return _SEQUENCE.sub("", text)
