"""How each worker of a run stands, one line for each at the bottom of the terminal, below what ranks print;
of a run that is made of runs, a line for each step that continues.

Made for `run` and `logs -f`. All of it is found in the lines and events that these read anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from echelon.cli.following.bottom import Key, PaintedLines
from echelon.cli.following.lines import StepColours
from echelon.cli.printing.render_usage import use_in_words
from echelon.cli.printing.say import shown, style
from echelon.cli.printing.words import RANK_COLOURS, ranges
from echelon.errors import EchelonError
from echelon.handle import Run
from echelon.metrics.bars import is_place, see
from echelon.metrics.progress import ProgressReader
from echelon.model.event import Event
from echelon.model.output.log import LogBlock, LogLine
from echelon.model.output.progress import Progress, words
from echelon.model.program import OVER, Step
from echelon.model.status import FINAL, Status, WorkerStatus, apply
from echelon.observation.sampling import NewestSamples
from echelon.values import frozen

_METRICS = 2  # that a line has room for


@frozen
class WorkerLine:
    """What is drawn of one worker. `painted` is a bar of its own that says nothing that we understand; `use`
    is what the worker uses, in few words.
    """

    worker: WorkerStatus
    progress: Progress | None = None
    painted: str = ""
    use: str = ""

    def head(self) -> str:
        """Its ranks, in the colour that their lines have."""
        ranks = self.worker.ranks
        name = f"[{ranges(ranks)}]" if ranks else f"[{self.worker.role} {self.worker.worker}]"
        return shown(style(name, fg=RANK_COLOURS[(ranks[0] if ranks else 0) % len(RANK_COLOURS)])) + " "

    def text(self) -> str:
        """How it stands."""
        found = self.progress
        if found is not None:
            found = replace(found, metrics=dict(list(found.metrics.items())[:_METRICS]))
        parts = [
            self.worker.state,
            self.painted,
            *(words(found) if found and not self.painted else ()),
            self.use,
        ]
        return "  ".join(filter(None, parts))


class WorkerLines(PaintedLines):
    """The lines of a run's workers, from the first that runs until the run's end or the end of this context.

    With `samples` they have a few words on what a worker uses."""

    def __init__(self, run: Run, patterns: Sequence[str], samples: NewestSamples | None = None) -> None:
        super().__init__()
        self._run, self._samples = run, samples
        self._status = Status(name=run.name, uri=run.uri)
        self._reader = ProgressReader(patterns)
        self._painted: dict[int, str] = {}  # what a rank has painted last, if it is a bar of its own

    def __enter__(self) -> Self:
        super().__enter__()
        if self._samples is not None:
            self._samples.__enter__()
        return self

    def __exit__(self, *how: object) -> None:
        if self._samples is not None:
            self._samples.__exit__(*how)
        super().__exit__(*how)

    def read(self, piece: LogLine | LogBlock) -> None:
        """Ranks have written this."""
        with self._lock:
            self._reader.read(piece)
            if isinstance(piece, LogLine) and piece.progress and piece.rank is not None:
                self._painted[piece.rank] = piece.text

    def take(self, event: Event) -> None:
        """This has happened."""
        if event.worker is not None and not self._status.workers:  # it has its plan now
            try:
                status = self._run.status(progress=False)
            except EchelonError:
                return  # what reads the lines reports it
        else:
            status = apply(self._status, event)
        with self._lock:
            self._status = status

    def drawn(self) -> dict[Key, tuple[str, str]]:
        """Those lines, by the workers."""
        return {(each.worker.worker, ""): (each.head(), each.text()) for each in self.lines()}

    def lines(self) -> list[WorkerLine]:
        """What is to be drawn now: nothing before a worker runs, nor after the end."""
        with self._lock:
            status = self._status
            if status.state in FINAL or all(each.state in ("waiting", "starting") for each in status.workers):
                return []
            return [self._line(each) for each in status.workers]

    def _line(self, worker: WorkerStatus) -> WorkerLine:
        progress = self._reader.lowest(worker.ranks)
        painted = next((text for rank in worker.ranks if (text := self._painted.get(rank))), "")
        if painted and is_place(see(painted)):
            painted = ""
        use = use_in_words(self._samples.of(worker.worker)) if self._samples is not None else ""
        return WorkerLine(worker=worker, progress=progress, painted=painted, use=use)


class PartLines(PaintedLines):
    """The lines of the active steps, from the first that begins until the end of this context."""

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
