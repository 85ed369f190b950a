"""A scripted run as far as it has come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from echelon.engines.memory.script import Happening
from echelon.model.event import Event
from echelon.model.output.log import LogLine
from echelon.model.run import Record, opening_status, summarise
from echelon.model.status import RunSummary, fold


@dataclass(slots=True, eq=False)
class ScriptedRun:
    """What was recorded of it, what happened, and what its ranks wrote."""

    record: Record
    events: list[Event] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)
    earlier: tuple[ScriptedRun, ...] = ()  # its starts before it was resumed

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return bool(self.events) and self.events[-1].kind == "finished"

    @property
    def untouched(self) -> bool:
        """Recorded, and neither started nor queued."""
        return {event.kind for event in self.events} <= {"recorded", "finished"}

    def note(self, happenings: Iterable[Happening], files: dict[str, bytes]) -> None:
        """Keep what happens; `files` are its results, with the ranks' logs among them."""
        for happening in happenings:
            if isinstance(happening, Event):
                self.events.append(happening)
            elif isinstance(happening, LogLine):
                self.lines.append(replace(happening, sequence=len(self.lines)))
                log = f"logs/rank-{happening.rank}.log"
                files[log] = files.get(log, b"") + happening.text.encode() + b"\n"
            else:
                files.update(happening)

    def summary(self) -> RunSummary:
        """Its row in a list of runs."""
        return summarise(self.record, fold(opening_status(self.record), self.events))
