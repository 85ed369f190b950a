"""How far a copy has come: a bar on a terminal, a line now and then elsewhere. On standard error, always."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from echelon.cli.printing import render
from echelon.cli.printing.say import coloured, shown
from echelon.model.resources import format_memory

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from echelon.model.copy import Progress

_EVERY = 5.0  # seconds between two lines


class CopyProgress:
    """Shows a copy from its first byte to its last; the copy calls `update`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._began = self._shown = time.monotonic()
        self._trouble = ""
        self._first: int | None = None  # bytes that were there already, which do not count for the speed

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bar = _make_bar()
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def notice(self, text: str) -> None:
        """Print a message without disturbing the bar."""
        if self._bar is not None:
            self._bar.console.print(f"echelon: {shown(text)}", highlight=False, markup=False)
        else:
            render.notice(text)

    def update(self, now: Progress) -> None:
        """Show how far it is."""
        if now.trouble:
            if now.trouble != self._trouble:
                self._trouble = now.trouble
                self.notice(f"{now.trouble}; trying again")
            return
        if self._trouble:
            self._trouble = ""
            self.notice("connected again; continuing")
        if self._bar is not None:
            self._show_bar(now, self._bar)
        else:
            self._show_line(now)

    def _show_bar(self, now: Progress, bar: Bar) -> None:
        if self._task is None:
            self._task = bar.add_task(shown(self._what), total=now.total, completed=now.done)
        bar.update(self._task, completed=now.done, total=now.total)

    def _show_line(self, now: Progress) -> None:
        at = time.monotonic()
        if self._first is None:
            self._first, self._began = now.done, at
        if at - self._shown >= _EVERY:
            self._shown = at
            speed = (now.done - self._first) / max(at - self._began, 1e-3)
            render.notice(
                f"{format_memory(now.done)} of {format_memory(now.total)}, {format_memory(speed)}/s"
                f" ({now.files_done} of {now.files} files)"
            )


def _make_bar() -> Bar:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, no_color=not coloured()),
        transient=True,
    )
