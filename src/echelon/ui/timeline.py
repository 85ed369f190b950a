"""Where a run's time went: its events as phases, one after another. Pure."""

from __future__ import annotations

from dataclasses import replace

from echelon.model.event import Event
from echelon.values import frozen

_MOST = 500  # phases that are kept: the last ones of a run that restarts for ever
_BEGINS = {
    "recorded": "recorded",
    "queued": "queued",
    "admitted": "placed",
    "waiting": "waiting",
    "worker-started": "starting",
    "gave-way": "queued",
    "restarting": "restarting",
    "notice": "stopping",
    "resizing": "stopping",
    "stopping": "stopping",
    "verdict": "ending",
}


@frozen
class Phase:
    """A stretch of time; `end` is None while it goes on."""

    name: str
    start: float
    end: float | None = None
    reason: str | None = None


class Timeline:
    """The phases so far."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self._started: set[int | None] = set()
        self._running: set[int | None] = set()
        self._members: tuple[int, ...] | None = None  # where their number changes, those that take part

    def add(self, event: Event) -> None:
        """Take an event into account; they come in order."""
        if event.kind == "finished":
            self._end(event.at)
        elif event.kind == "resized":
            self._members = event.workers
        elif event.kind == "worker-started" and event.worker not in (self._members or (event.worker,)):
            pass  # it takes part later
        elif event.kind == "worker-running":
            self._running.add(event.worker)
            if self._running >= self._started:
                self._begin("training", event.at, None)
        elif event.kind == "waiting" and event.trouble == "pulling":
            self._begin("pulling", event.at, event.reason)
        elif (name := _BEGINS.get(event.kind)) is not None:
            if event.kind in ("admitted", "gave-way", "restarting", "queued"):
                self._started.clear()
                self._running.clear()
            elif event.kind == "worker-started":
                self._started.add(event.worker)
                self._running.discard(event.worker)
            self._begin(name, event.at, event.reason)

    def _begin(self, name: str, at: float, reason: str | None) -> None:
        last = self.phases[-1] if self.phases else None
        if last is not None and last.end is None and last.name == name:
            self.phases[-1] = replace(last, reason=reason or last.reason)
            return
        self._end(at)
        self.phases.append(Phase(name=name, start=at, reason=reason))
        del self.phases[:-_MOST]

    def _end(self, at: float) -> None:
        if self.phases and self.phases[-1].end is None:
            last = self.phases[-1]
            self.phases[-1] = replace(last, end=max(last.start, at))
