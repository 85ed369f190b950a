"""How lines of ranks are printed; of a run that is made of runs, each with its step, and notices of
the steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from echelon.cli.following.bottom import BottomLines
from echelon.cli.printing.recent import Recent
from echelon.cli.printing.say import shown, split_at_cut, style, tamed, tamed_lines
from echelon.cli.printing.words import RANK_COLOURS, step_ended
from echelon.errors import from_output_error
from echelon.model.event import Event
from echelon.model.output.log import LogBlock, LogLine, in_part
from echelon.model.program import OVER, Step

if TYPE_CHECKING:
    from echelon.cli.following.bottom import PaintedLines

_PROGRESS_EVERY = 5.0  # seconds between two lines of a rank's progress where it cannot be painted over
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green")
_NOT_RUNNING = ("recorded", "queued", "starting", "restarting")
_EXECUTOR = "executor"  # stands before what no step has written


class LinePrinter:
    """Prints log lines, each with its rank; of a single rank, as it wrote them. Where a run has lines
    at the bottom of the terminal, bars of several ranks are there; elsewhere they are a line now and then.

    Unless `raw`, what would do more to a terminal than colour the line and paint it over is left out."""

    def __init__(
        self,
        *,
        prefix: bool = True,
        timestamps: bool = False,
        to_stderr: bool = False,
        at_once: bool = True,
        raw: bool = False,
        only: Collection[int] = (),
        recent: Recent | None = None,
        below: PaintedLines | None = None,
    ) -> None:
        """`only` are the ranks to print, if not all; `recent` receives what was printed, `below` what was
        read.
        """
        self._only = frozenset(only)
        self._recent = recent
        self._prefix = prefix
        self._timestamps = timestamps
        self._as_written = not prefix and not timestamps
        self._to_stderr = to_stderr
        self._tamed = (lambda text: text) if raw else tamed
        self._tamed_lines = (lambda text: text) if raw else tamed_lines
        self._cut: dict[tuple[int | None, str], str] = {}
        self._at_once = at_once  # lines that come while a person watches are shown as they come
        self._begun: dict[tuple[int | None, str], LogLine] = {}
        self._terminal = {"stdout": sys.stdout.isatty(), "stderr": sys.stderr.isatty()}
        self._open_line = False
        self._painted = False
        self._below = below
        self._bottom = BottomLines() if below is None else below.bottom
        self._progress_at: dict[tuple[str, int | None, str], float] = {}

    def show(self, line: LogLine) -> None:
        """Print one line, or a piece of one."""
        if self._below is not None:
            self._below.read(line)
        self._show(line)

    def _show(self, line: LogLine) -> None:
        import dataclasses

        if line.progress and not self._is_shown(line):
            return
        if self._as_written:
            self._show_as_written(line)
            return
        key = (line.rank, line.stream)
        begun = self._begun.pop(key, None)
        if begun is not None:
            line = dataclasses.replace(line, text=begun.text + line.text)
        if line.unfinished:
            self._begun[key] = line
        else:
            self._write(line, f"{self._head(line)}{self._tamed(line.text)}\n")

    def show_block(self, block: LogBlock) -> None:
        """Print lines that came at once, in one write. The first may continue what was begun before."""
        if self._below is not None:
            self._below.read(block)
        self._show(block.first)
        head = self._head(block.first)
        rest = self._tamed_lines(block.rest)
        self._write(block.first, head + (rest.replace("\n", "\n" + head) if head else rest) + "\n")

    def finish(self) -> None:
        """Print what was begun and never ended."""
        for line in self._begun.values():
            self._write(line, f"{self._head(line)}{self._tamed(line.text)}\n")
        if self._open_line and sys.stdout.isatty():
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _show_as_written(self, line: LogLine) -> None:
        """Print a single rank's output; on a terminal its progress bar overwrites itself."""
        paints = line.progress and self._on_terminal(line)
        again = "\r\x1b[K" if self._painted else ""
        text = self._cut.pop((line.rank, line.stream), "") + line.text
        if line.unfinished:
            text, self._cut[line.rank, line.stream] = split_at_cut(text)
        self._open_line = line.unfinished or paints
        self._write(line, again + self._tamed(text) + ("" if self._open_line else "\n"))
        self._painted = paints

    def _write(self, line: LogLine, text: str) -> None:
        if self._only and line.rank is not None and line.rank not in self._only:
            return
        stream = sys.stderr if self._to_stderr or line.stream == "stderr" else sys.stdout
        if self._recent is not None:
            self._recent.note(line.rank, text, seen=stream is sys.stderr or self._terminal["stdout"])
        try:
            with self._bottom.hidden(open_line=self._open_line):
                stream.write(text)
                if self._at_once:
                    stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            name = "standard error" if stream is sys.stderr else "standard output"
            raise from_output_error(error, name) from error

    def _on_terminal(self, line: LogLine) -> bool:
        return self._terminal["stderr" if self._to_stderr else line.stream]

    def _is_shown(self, line: LogLine) -> bool:
        """Whether to show a state of a progress bar: each, where bars are painted over; elsewhere, one every
        few seconds.
        """
        if self._only and line.rank not in self._only:
            return False
        if self._as_written and self._on_terminal(line) and self._at_once:
            return True
        if self._below is not None:
            return False  # it is there
        key = (line.part, line.rank, line.stream)
        if not line.text:
            self._progress_at.pop(key, None)  # the bar is over; the line that it has become follows
            return False
        if line.at - self._progress_at.setdefault(key, line.at) < _PROGRESS_EVERY:
            return False
        self._progress_at[key] = line.at
        return True

    def _head(self, line: LogLine) -> str:
        stamp = ""
        if self._timestamps:
            clock = time.strftime("%H:%M:%S", time.localtime(line.at))
            stamp = f"{clock}.{int(line.at * 1000) % 1000:03d} "
        return f"{stamp}{self._name(line)} " if self._prefix else stamp

    def _name(self, line: LogLine) -> str:
        """Who has written it."""
        if line.rank is None:
            return f"[agent {line.worker}]"
        name = f"[{line.rank}]"
        if self._on_terminal(line):
            return shown(style(name, fg=RANK_COLOURS[line.rank % len(RANK_COLOURS)]))
        return name


class DataPrinter:
    """Prints log lines as data: JSON, one object to a line, or the items of one YAML list."""

    def __init__(self, format_: str, *, at_once: bool = True) -> None:
        self._as_json = format_ == "json"
        self._at_once = at_once

    def show(self, line: LogLine) -> None:
        """Print one line."""
        from echelon.cli.printing.data_text import json_text, yaml_text

        if line.progress and not line.text:
            return  # only says that a progress bar is over
        if self._as_json:
            sys.stdout.write(json_text(line) + "\n")
        else:
            sys.stdout.write(yaml_text([line]))
        if self._at_once:
            sys.stdout.flush()

    def finish(self) -> None:
        """Have all of it printed."""
        sys.stdout.flush()


class StepColours:
    """The colour of each step, by their first appearance; any thread may ask."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def head(self, text: str, step: str) -> str:
        """What stands before a line of a step, in its colour."""
        colour = self._known.setdefault(step, _COLOURS[len(self._known) % len(_COLOURS)])
        return shown(style(f"[{text}]", fg=colour))


class PartPrinter(LinePrinter):
    """Prints lines, each with its step, and with its rank if that is not 0."""

    def __init__(self, colours: StepColours, **how: Any) -> None:
        super().__init__(**how)
        self._colours = colours

    def _name(self, line: LogLine) -> str:
        name = in_part(line.part, line.rank) or _EXECUTOR
        return self._colours.head(name, line.part) if self._on_terminal(line) else f"[{name}]"


class StepNotices:
    """Notices about the steps, as it happens: why one waits, and how it ended. Nothing twice."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}
        self._going: dict[str, None] = {}

    def of(self, event: Event) -> Iterator[str]:
        """What is new with an event."""
        for step in event.steps or ():
            if step.run and step.state not in OVER:
                self._going[step.name] = None
            else:
                self._going.pop(step.name, None)
            text = _notice_of(step)
            if text and self._reported.get(step.name) != text:
                yield text
            self._reported[step.name] = text
        if event.kind == "finished" and self._going:
            yield f"its executor is gone; what may still run: {', '.join(self._going)}"


def _notice_of(step: Step) -> str:
    if step.state not in OVER:
        waits = step.reason and step.state in _NOT_RUNNING
        return f"{'trial' if step.params else 'step'} {step.name}: {step.reason}" if waits else ""
    return "" if step.state == "kept" else step_ended(step, took=True)  # a kept one was reported before
