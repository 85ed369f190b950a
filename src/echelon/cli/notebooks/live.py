"""A pipeline run in the foreground: what its steps print as it comes, and how each stands."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from echelon.cli.following.bottom import BottomLines
from echelon.cli.printing import render
from echelon.cli.printing.say import say, shown, style, tamed
from echelon.cli.printing.words import one_line

if TYPE_CHECKING:
    from echelon.model.output.log import LogLine
    from echelon.notebook.kept.folder import StepRecord

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green")


class PipelineView:
    """Prints lines, each with its step; on a terminal the steps that run are at its bottom. Several threads
    call it."""

    def __init__(self, *, to_stderr: bool = False) -> None:
        self._to_stderr = to_stderr
        self._lock = threading.Lock()
        self._colours: dict[str, str] = {}
        self._bottom = BottomLines() if sys.stderr.isatty() else None
        self._began: dict[str, float] = {}

    def changed(self, step: str, record: StepRecord) -> None:
        """A step stands otherwise than before."""
        with self._lock:
            if record.state == "running":
                self._began[step] = time.monotonic()
                self._put(step, "running")
                return
            if self._bottom is not None:
                self._bottom.put((None, step), "", "")
            if record.state == "waiting":
                return
            took = f" in {time.monotonic() - self._began[step]:.1f} s" if step in self._began else ""
            reason = f": {record.reason}" if record.reason else ""
            if record.state == "failed":
                where = f" in cell {record.cell}" if record.cell else ""
                reason = f"{where}{reason}"
            render.notice(one_line(f"step {step} {record.state.replace('-', ' ')}{took}{reason}"))

    def line(self, step: str, line: LogLine) -> None:
        """A process of a step has written a line."""
        with self._lock:
            if line.progress:
                self._put(step, line.text)
                return
            rank = f" {line.rank}" if line.rank else ""
            head = style(f"[{step}{rank}] ", fg=self._colour(step))
            say(f"{head}{tamed(line.text)}", err=self._to_stderr or line.stream == "stderr")

    def notice(self, text: str) -> None:
        """Something that the user should know."""
        render.notice(one_line(text))

    def close(self) -> None:
        """Show nothing at the bottom any more."""
        if self._bottom is not None:
            self._bottom.close()

    def _put(self, step: str, text: str) -> None:
        if self._bottom is not None:
            self._bottom.put((None, step), shown(style(f"[{step}] ", fg=self._colour(step))), text)

    def _colour(self, step: str) -> str:
        return self._colours.setdefault(step, _COLOURS[len(self._colours) % len(_COLOURS)])
