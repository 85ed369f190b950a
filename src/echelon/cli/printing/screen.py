"""What is shown again and again, as `top` does: on the terminal's second screen. The user's first one is as
it was when that ends."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the second screen, without the cursor; back
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"


def is_possible() -> bool:
    """Whether standard output is a terminal that has a second screen."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Screen:
    """The second screen, during the block; Ctrl-Z leaves it, too, and `fg` comes back to it."""

    def __enter__(self) -> Self:
        handlers: dict[int, Any] = {signal.SIGTERM: _end, signal.SIGTSTP: self._pause}
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        _write(_ENTER)
        return self

    def __exit__(self, *_error: object) -> None:
        _write(_LEAVE)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def draw(self, show: Callable[[], object]) -> None:
        """Let `show` print, and put as much of it there as the screen has lines: it cannot be scrolled."""
        page = _Page()
        with contextlib.redirect_stdout(page), contextlib.redirect_stderr(page):
            show()
        lines, most = page.getvalue().splitlines(), shutil.get_terminal_size().lines
        if len(lines) > most:
            lines[most - 1 :] = [f"... {len(lines) - most + 1} more lines"]
        _write(_HOME + "\r\n".join(f"{line}{_REST_OF_LINE}" for line in lines) + _REST)

    def _pause(self, _number: int, _frame: FrameType | None) -> None:
        _write(_LEAVE)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # `fg` continues here
        signal.signal(signal.SIGTSTP, self._pause)
        _write(_ENTER)


class _Page(io.StringIO):
    """What is printed to it is for a terminal."""

    def isatty(self) -> bool:
        return True


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _write(text: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that is gone has nothing to be put back
        sys.__stdout__.write(text)  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
