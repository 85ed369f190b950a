"""The signals of a stop, sent one after the other: each to what the one before has left."""

from __future__ import annotations

import signal
from functools import partial

from echelon.agent import stopping
from echelon.agent.loop import Loop, Timer
from echelon.agent.ranks.processes import interrupted, send

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable


class Ladder:
    """Sends the processes of `pids()` a signal, and harder ones after `grace` seconds each; `kill_all()` is
    the last step.
    """

    def __init__(
        self, loop: Loop, grace: float, pids: Callable[[], list[int]], kill_all: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._grace = grace
        self._pids = pids
        self._kill_all = kill_all
        self._next: Timer | None = None
        self.sent: str | None = None  # the last signal of this stop

    def climb(self, name: str) -> None:
        """Send this signal now, and the harder ones later."""
        self.cancel()
        self.sent = name
        if name == stopping.KILL:
            self._next = self._loop.call_later(0, self._kill_all)
            return
        for pid in self._pids():
            for each in interrupted(pid) if name == stopping.INTERRUPT else [pid]:
                send(each, getattr(signal, name))
        self._next = self._loop.call_later(self._grace, partial(self.climb, stopping.after(name)))

    def cancel(self) -> None:
        """Send no more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def forget(self) -> None:
        """Other ranks start, to which no signal was sent."""
        self.sent = None
