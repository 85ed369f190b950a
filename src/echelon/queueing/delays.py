"""Whether a run that starts now would delay one that has waited for long. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from echelon.model.queue import HoldingRun, QueuedRun
from echelon.queueing.rooms import Room, Seated
from echelon.values import frozen

FORESEEN = 30  # ends of runs that are looked ahead to


@frozen
class Kept:
    """A run that may not be delayed any more, and when it could start; None: that is not known."""

    run: QueuedRun
    start: float | None


class Future:
    """What is free at each time when runs end by their time limits, if no other starts."""

    def __init__(self, room: Room, holding: Sequence[HoldingRun], now: float) -> None:
        self._rooms = [(now, room)]  # as far as it was asked for
        self._holding = holding
        self._now = now

    def start_of(self, run: QueuedRun) -> float | None:
        """When the run would fit; None if that is not known."""
        for at in range(min(len(self._ends), FORESEEN) + 1):
            when, room = self._at(at)
            if room.fits(run):
                return when
        return None

    def room_at(self, when: float) -> Room:
        """What is free at that time."""
        return self._at(bisect_right(self._ends, when, key=lambda each: max(each[0], self._now)))[1]

    def _at(self, number: int) -> tuple[float, Room]:
        while number >= len(self._rooms):
            end, gone = self._ends[len(self._rooms) - 1]
            self._rooms.append((max(end, self._now), self._rooms[-1][1].without(gone)))
        return self._rooms[number]

    @cached_property
    def _ends(self) -> list[tuple[float, list[str]]]:
        """Who ends when, the first first."""
        found: dict[float, list[str]] = {}
        for each in self._holding:
            if each.ends is not None:
                found.setdefault(each.ends, []).append(each.name)
        return sorted(found.items())


class Checks:
    """Whom runs would delay if they started now. An answer holds for all runs of one kind, until one starts:
    that they get the same place, and do not end before the other could start.
    """

    def __init__(self, room: Room, future: Future) -> None:
        self._room = room
        self._future = future
        self._rooms: dict[tuple[Hashable, float], Room] = {}  # at a time, if a run of a kind started now
        self._known: dict[tuple[Hashable, str], bool] = {}

    def recall(self, kept: Iterable[Kept], kind: Hashable, ends: float | None) -> QueuedRun | None:
        """A run that one of this kind, until it `ends`, is known to delay."""
        found = (each.run for each in _after(kept, ends) if self._known.get((kind, each.run.name)))
        return next(found, None)

    def find_delayed(
        self, kept: Iterable[Kept], run: QueuedRun, seated: Seated[Any], kind: Hashable, ends: float | None
    ) -> QueuedRun | None:
        """The first run that this one would delay in its place, until it `ends`."""
        if not run.gpus:
            return None
        for each in _after(kept, ends):
            key = (kind, each.run.name)
            if key not in self._known:
                self._known[key] = self._delays(each, run, seated, kind)
            if self._known[key]:
                return each.run
        return None

    def _delays(self, kept: Kept, run: QueuedRun, seated: Seated[Any], kind: Hashable) -> bool:
        if kept.start is None:
            return self._room.competes(kept.run, run)
        key = (kind, kept.start)
        if key not in self._rooms:
            self._rooms[key] = self._future.room_at(kept.start).give(run, seated)
        return not self._rooms[key].fits(kept.run)


def _after(kept: Iterable[Kept], ends: float | None) -> Iterator[Kept]:
    """Those that could not start only once a run has ended."""
    for each in kept:
        if each.start is None or ends is None or ends > each.start:
            yield each
