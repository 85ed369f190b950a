"""A member's connection to its leader.

A worker's events go to the leader too (`forward`), and are kept while there is none, so that nothing is
missing in the leader's log."""

from __future__ import annotations

import time
from collections import deque

from echelon.agent.gang import giving_way
from echelon.agent.gang.dial import Dial
from echelon.agent.gang.member import Member
from echelon.agent.loop import Loop
from echelon.agent.task import Place, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

MOST_UNSENT = 1000  # events kept for the next leader; the latest matter most


class LeaderConnection(Dial):
    """One member's connection to the current leader."""

    def __init__(
        self, loop: Loop, task: Task, place: Place, member: Member, failures: int = 0, told: int = 0
    ) -> None:
        super().__init__(loop, task, "member", place.worker, task.join_timeout)
        self._member = member
        self._failures = failures
        self._told = told  # of those, how many were told to leave
        self._unsent: deque[dict[str, object]] = deque(maxlen=MOST_UNSENT)
        self.verdict: dict[str, object] | None = (
            None  # once the run is over; for a replaced leader that does not know it
        )
        self.on_welcome: Callable[[], object] = lambda: None
        member.send = self.send
        self.begin()

    def gives_way_after(self, seconds: float, give_way: Callable[[str], object]) -> None:
        """Call `give_way(reason)` when no leader was connected for so long and the gang was never whole: the
        leader's pod may wait for the GPUs that another run holds, while this one's has some.
        """

        def look() -> None:
            if self._member.last_started >= 0 or self.closing:
                return
            alone = 0.0 if self.connected else time.monotonic() - self._began
            if alone >= seconds:
                give_way(giving_way.why([0], seconds))
            else:
                self._loop.call_later(seconds - alone, look)

        look()

    def forward(self, event: dict[str, object]) -> None:
        """Send an event to the leader, now or as soon as there is one."""
        if self.connected:
            self.send({"say": "event", "event": event})
        else:
            self._unsent.append(event)

    def greeting(self) -> dict[str, object]:
        """Which generations this worker knows of."""
        said: dict[str, object] = {
            "last_started": self._member.last_started,
            "failures": self._failures,
            "spared": self._member.spared,
            "told": self._told,
            "finished": self.verdict is not None,
            "leaving": self._member.leaving,
        }
        elapsed = self._member.elapsed()
        if elapsed is not None:
            said["elapsed"] = round(elapsed, 3)
        if self._member.missing:
            said["missing"] = self._member.missing
        return said

    def obey(self, message: dict[str, object]) -> None:
        """An order is the member's to carry out."""
        self._member.obey(message)

    def welcomed(self) -> None:
        """Tell a leader what it missed."""
        if self.verdict is not None:
            self.send({"say": "verdict", "verdict": self.verdict})
        while self._unsent and self.connected:
            self.forward(self._unsent.popleft())
        self.on_welcome()
