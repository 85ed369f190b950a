"""What a worker says of the end of its part, and of the results that it holds: events, state lines, and, when
the leader is gone, the verdict in its own log."""

from __future__ import annotations

import time

from echelon.agent.loop import Loop
from echelon.agent.output.sink import Sink
from echelon.agent.output.state_line import History

REPEAT_UNTIL = 30.0  # seconds by which the end of holding moves before it is stated again
REPEAT_HELD = 5.0  # seconds between two state lines while results are held


class Statements:
    """Those of one worker."""

    def __init__(self, loop: Loop, worker: int, sink: Sink, history: History) -> None:
        self._loop = loop
        self._worker = worker
        self._sink = sink
        self._history = history
        self._until = 0.0  # the end of holding, as it was stated last
        self._alone = False  # the leader is gone, and this worker holds its results by itself

    def say_hold(self, until: float, *, leads: bool) -> None:
        """State until when results are held, if that has moved."""
        if until - self._until > REPEAT_UNTIL:
            self._until = until
            if leads:
                self._sink.event("holding", until=round(until, 3))
            elif self._alone:
                self._say_alone()

    def begin_repeating(self) -> None:
        """Repeat the state line, since a log may be rotated after its last line. Members, which have no
        events of the run, do it too: in an empty log a reader could not see that lines are missing.
        """
        self._loop.call_later(REPEAT_HELD, self._repeat)

    def _repeat(self) -> None:
        self.repeat()
        self.begin_repeating()

    def repeat(self) -> None:
        """Write a state line."""
        self._history.repeat(self._sink)

    def take_over(self, verdict: dict[str, object]) -> None:
        """The leader is gone, and the run is over: from now on this worker's own log has the verdict."""
        if not self._alone:
            self._alone = True
            self._history.note(dict(verdict, kind="verdict", at=round(time.time(), 3)))
            self.repeat()
            if self._until:
                self._say_alone()

    def _say_alone(self) -> None:
        clock = time.strftime("%H:%M:%S", time.gmtime(self._until))
        reason = "worker %d holds its results without worker 0, until %s UTC" % (self._worker, clock)
        holds = {"kind": "holding", "worker": self._worker, "until": round(self._until, 3)}
        self._history.note(dict(holds, at=round(time.time(), 3)))
        self.repeat()
        self._sink.event("note", worker=self._worker, reason=reason)

    def end_part(self, code: int | None, manifests: list[dict[str, object]]) -> None:
        """State that this worker's part is over, and what it holds."""
        ended: dict[str, object] = {"exit_code": code}
        if manifests:
            ended["manifests"] = manifests
        self._sink.event("worker-ended", worker=self._worker, **ended)
