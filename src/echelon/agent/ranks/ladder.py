"""The signals of a stop, sent one after the other: each to what the one before has left."""

from __future__ import annotations

import signal
import time
from functools import partial

from echelon.agent import stopping
from echelon.agent.loop import Loop, Timer
from echelon.agent.ranks.processes import ignores, interrupted, send

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable


class Ladder:
    """Sends the processes of `pids()` a signal, and harder ones up to a deadline; then `kill_all()` is
    called, with the seconds since the first signal where the time was over.
    """

    def __init__(
        self, loop: Loop, pids: Callable[[], list[int]], kill_all: Callable[[float | None], object]
    ) -> None:
        self._loop = loop
        self._pids = pids
        self._kill_all = kill_all
        self._next: Timer | None = None
        self._began = 0.0
        self.sent: str | None = None  # the last signal of this stop
        self.deadline = float("inf")  # when SIGKILL is sent, as time.monotonic() counts
        self.interrupted: set[int] = set()  # processes that got SIGINT, and do not ignore it
        self.terminated: set[int] = set()  # those that got SIGTERM

    def climb(self, name: str, deadline: float) -> None:
        """Send this signal now, and the harder ones in equal parts of the time to the deadline."""
        if self.sent is None:
            self._began = time.monotonic()
        self.sent = name
        if name == stopping.KILL:
            self._set(deadline, 0.0, partial(self._kill_all, None))
            return
        for pid in self._pids():
            for each in interrupted(pid) if name == stopping.INTERRUPT else [pid]:
                if name == stopping.TERMINATE:
                    self.terminated.add(each)
                elif not ignores(each, signal.SIGINT):
                    self.interrupted.add(each)
                send(each, getattr(signal, name))
        self.move(deadline)

    def move(self, deadline: float) -> None:
        """Set another deadline for what was sent a signal."""
        left = max(0.0, deadline - time.monotonic())
        if self.sent == stopping.INTERRUPT:
            self._set(deadline, left / 2, lambda: self.climb(stopping.TERMINATE, self.deadline))
        elif self.sent == stopping.TERMINATE:
            self._set(deadline, left, lambda: self._kill_all(deadline - self._began))

    def tell(self, pid: int) -> None:
        """Send SIGTERM to a process that an ended one has left."""
        self.terminated.add(pid)
        send(pid, signal.SIGTERM)

    def _set(self, deadline: float, wait: float, then: Callable[[], object]) -> None:
        self.cancel()
        self.deadline = deadline
        self._next = self._loop.call_later(wait, then)

    def cancel(self) -> None:
        """Send no more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def forget(self) -> None:
        """Other ranks start, to which no signal was sent."""
        self.cancel()
        self.sent, self.deadline = None, float("inf")
        self.interrupted, self.terminated = set(), set()
