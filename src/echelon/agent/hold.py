"""How long results are kept for clients to fetch them, and when the one that keeps them may leave. Pure: the
caller tells the time.

There is one timer. Each contact with a client begins it anew, and a client that fetches says for how long it
is at work, again and again. It says so to every worker by itself, so that no other agent has to know."""

from __future__ import annotations

LONGEST = 300.0  # seconds that a client may be at work without saying so again


class Hold:
    """The timer of one worker, or of the keeper."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._own = now + seconds
        self._clients: dict[str, float] = {}  # those at work, each with the end of the time that it asked for
        self._done: set[str] = set()  # those that have everything; they may have asked for time before
        self.released = False

    @property
    def until(self) -> float:
        """The end of the time."""
        return max([0.0 if self.released else self._own, *self._clients.values()])

    def renew(self, now: float, client: str = "", seconds: float = 0.0) -> None:
        """The time begins anew: a client was here, and is at work for so many seconds, or results move."""
        self._own = now + self._seconds
        self._clients = {name: end for name, end in self._clients.items() if end > now}
        if seconds > 0 and client not in self._done:
            self._clients[client] = now + min(seconds, LONGEST)
        else:
            self._clients.pop(client, None)

    def release(self, client: str) -> None:
        """A client has all that the run has made; another one that is at work is waited for."""
        self.released = True
        self._done.add(client)
        self._clients.pop(client, None)

    def is_over(self, now: float) -> bool:
        """Whether the time has passed."""
        return now >= self.until


def may_leave(
    *, over: bool, busy: bool, kept: bool, leads: bool, has_members: bool = False, is_led: bool = False
) -> bool:
    """Whether a worker may leave whose part of the run is over. Its time is `over`, and it is not `busy` with
    a copy; or the keeper has what it made (`kept`). The leader leaves last: its end may end all pods. A
    member leaves to the keeper only while a leader is there, which knows how the run ended.
    """
    if leads and has_members:
        return False
    return (over and not busy) or (kept and (leads or is_led))
