"""How the steps of a run that is made of runs stand: a line for each that goes on, below what they print."""

from __future__ import annotations

from dataclasses import replace

from echelon.cli.following.bottom import Key
from echelon.cli.following.painted import PaintedLines
from echelon.cli.following.steps import StepColours
from echelon.metrics.bars import is_place, see
from echelon.metrics.progress import ProgressReader
from echelon.model.event import Event
from echelon.model.output.log import LogBlock, LogLine
from echelon.model.output.progress import words
from echelon.model.program import OVER, Step
from echelon.model.status import FINAL, Status, apply

_METRICS = 2  # that a line has room for


class PartLines(PaintedLines):
    """The lines of the steps that go on, from the first that begins until the end of this context."""

    def __init__(self, name: str, uri: str, colours: StepColours) -> None:
        super().__init__()
        self._status = Status(name=name, uri=uri)
        self._colours = colours
        self._readers: dict[str, ProgressReader] = {}
        self._painted: dict[str, str] = {}  # what a step has painted last, if it is a bar of its own

    def read(self, piece: LogLine | LogBlock) -> None:
        """A step has written this."""
        line = piece if isinstance(piece, LogLine) else piece.first
        with self._lock:
            self._readers.setdefault(line.part, ProgressReader()).read(piece)
            if line.progress:
                self._painted[line.part] = line.text

    def take(self, event: Event) -> None:
        """This has happened; what steps that are over have written is forgotten."""
        with self._lock:
            self._status = apply(self._status, event)
            for step in event.steps or ():
                if step.state in OVER:
                    self._readers.pop(step.name, None)
                    self._painted.pop(step.name, None)

    def drawn(self) -> dict[Key, tuple[str, str]]:
        """A line for each step that has begun, in the order of the steps."""
        with self._lock:
            if self._status.state in FINAL:
                return {}
            return {
                (number, step.name): (f"{self._colours.head(step.name, step.name)} ", self._text(step))
                for number, step in enumerate(self._status.steps)
                if step.state not in OVER and step.state != "waiting"
            }

    def _text(self, step: Step) -> str:
        painted = self._painted.get(step.name, "")
        if painted and is_place(see(painted)):
            painted = ""
        reader = self._readers.get(step.name)
        progress = None if reader is None else reader.lowest()
        if progress is not None:
            progress = replace(progress, metrics=dict(list(progress.metrics.items())[:_METRICS]))
        state = f"{step.state}: {step.reason}" if step.reason else step.state
        return "  ".join(
            filter(None, [state, painted, *(words(progress) if progress and not painted else ())])
        )
