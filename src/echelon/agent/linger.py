"""How long a worker whose part is over keeps its results for a client to fetch them.

The time begins again at each contact with a client, does not pass while one fetches, and passes only while
the API server can be reached: without it no client can come. It begins again when the API server is back, and
is at least AFTER_OUTAGE then: clients, too, need a while to notice it. A namespace may forbid its pods to
reach the API server at all, so that time without it counts after all once it is LONGEST_AWAY times the time
to linger."""

from __future__ import annotations

import errno
import os
import socket

from echelon.agent.loop import WRITE, Loop, Timer

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

LONGEST_AWAY = 10.0
AFTER_OUTAGE = 60.0  # seconds
_LONGEST_VISIT = 300.0  # seconds that a client may attend without saying so again
_ON_THE_WAY = (errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK)


class Linger:
    """Counts the time that is left. Pure: the caller tells the time and what there is."""

    def __init__(self, hold: float) -> None:
        self.left = hold
        self._hold = hold
        self._last: float | None = None  # when `pass_time` was last called
        self._away = 0.0  # seconds without the API server since the last contact
        self._back = False  # the API server was away at the last call
        self._clients: dict[str, float] = {}  # those that fetch, each with the end of its visit

    @property
    def over(self) -> bool:
        """Whether nothing is left of the time."""
        return self.left <= 0

    def contact(self) -> None:
        """A client was here: the time begins again."""
        self.left, self._away = self._hold, 0.0

    def attend(self, client: str, seconds: float, now: float) -> None:
        """A client fetches from the run's workers for the next seconds; with 0, it does not any more."""
        self.contact()
        if seconds > 0:
            self._clients[client] = now + min(seconds, _LONGEST_VISIT)
        else:
            self._clients.pop(client, None)

    def is_attended(self, now: float) -> bool:
        """Whether a client fetches."""
        return bool(self.visits(now))

    def visits(self, now: float) -> dict[str, float]:
        """The clients that fetch, each with the seconds that it may still take."""
        self._clients = {client: until for client, until in self._clients.items() if until > now}
        return {client: until - now for client, until in self._clients.items()}

    def dismiss(self) -> None:
        """No client fetches any more."""
        self._clients = {}

    def hold_for(self, seconds: float) -> None:
        """Nothing but this is left of the time, until the next contact."""
        self.left = min(seconds, self._hold)

    def pass_time(self, now: float, busy: bool, reachable: bool) -> None:
        """Count the time since the last call; `busy` while files are copied, `reachable`: the API server."""
        passed = 0.0 if self._last is None else now - self._last
        self._last = now
        if busy or self.is_attended(now):
            self.contact()
        elif self._away >= LONGEST_AWAY * self._hold:
            self.left -= passed
        elif not reachable:
            self._away += passed
            self._back = True
        elif self._back:
            self.left, self._back = max(self._hold, AFTER_OUTAGE), False
        else:
            self.left -= passed


def try_api_server(loop: Loop, patience: float, then: Callable[[bool], object]) -> None:
    """Call `then()` with whether a connection to the API server can be made; True outside a cluster."""
    host, port = (os.environ.get("KUBERNETES_SERVICE_%s" % name, "") for name in ("HOST", "PORT"))
    if not host or not port.isdigit():
        loop.call_later(0, lambda: then(True))
        return
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setblocking(False)
    timer: list[Timer] = []

    def end(reached: bool) -> None:
        if sock.fileno() >= 0:
            timer[0].cancel()
            loop.forget(sock)
            sock.close()
            then(reached)

    timer.append(loop.call_later(patience, lambda: end(False)))
    try:
        code = sock.connect_ex((host, int(port)))
    except OSError:
        code = errno.EHOSTUNREACH
    if code in _ON_THE_WAY:
        loop.watch(sock, WRITE, lambda _: end(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0))
    else:
        loop.call_later(0, lambda: end(code == 0))
