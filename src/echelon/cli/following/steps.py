"""A run that is made of runs, in the foreground: each line with its step, and notices of the steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from echelon.cli.following.lines import LinePrinter
from echelon.cli.printing.say import shown, style
from echelon.cli.printing.words import step_ended
from echelon.model.event import Event
from echelon.model.output.log import LogLine, in_part
from echelon.model.program import OVER, Step

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green")
_NOT_RUNNING = ("recorded", "queued", "starting", "restarting")
_EXECUTOR = "executor"  # stands before what no step has written


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
