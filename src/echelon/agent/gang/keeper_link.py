"""The leader's end of the connection to the run's keeper, which holds results when the workers have left.

The keeper is no member: the gang neither waits for it nor restarts without it. It says where it takes
results, which the leader passes on to the workers, and it is told the run's events that still matter, so
that its own log has them when the workers' are gone."""

from __future__ import annotations

import time

from echelon.agent.address import is_address
from echelon.agent.gang.wire import Connection
from echelon.agent.loop import Loop

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

SIDE = "keeper"
NUMBER = -1  # in the keeper's proofs, where a member has its worker's number
TOGETHER = 0.5  # seconds within which events that come together are told together
NOTED_TIME = 5.0  # seconds within which the keeper confirms what it was told


class KeeperLink:
    """At most one keeper; a new one replaces the one before."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._connection: Connection | None = None
        self._told = self._noted = 0  # how many times the events were sent, and confirmed
        self._telling = False  # it is told soon
        self.address: tuple[str, int] | None = None  # where it takes results
        self._id: object = None  # tells it from another one at the same address
        self.on_change: Callable[[], object] = lambda: None  # it has come, or has gone
        self.on_shelf: Callable[[dict[str, object]], object] = lambda _message: None  # of checkpoints

    @property
    def connected(self) -> bool:
        """Whether there is a keeper."""
        return self._connection is not None

    def welcome(self, connection: Connection, greeting: dict[str, object]) -> None:
        """A keeper has proved itself."""
        if self._connection is not None:
            self._connection.close()
        said, port = greeting.get("address"), greeting.get("port")
        host = said if is_address(said) else connection.peer_address()
        self._connection, self._told, self._noted = connection, 0, 0
        self.address = (str(host), port) if type(port) is int and 0 < port < 65536 else None
        connection.on_message = self._on_message
        connection.on_closed = lambda closed, _reason: self._on_gone(closed)
        self._id = greeting.get("id")
        self.on_change()

    def message(self) -> dict[str, object]:
        """What workers are told of it."""
        host, port = self.address or (None, None)
        return {"say": "keeper", "address": host, "port": port, "id": self._id}

    def order(self, message: dict[str, object]) -> None:
        """Tell it what to do with checkpoints."""
        if self._connection is not None:
            self._connection.send(message)

    def tell(self, events: list[dict[str, object]], left: bool = False) -> None:
        """Tell it the events that still matter; with `left`, that the leader ends the run now, in order."""
        if self._connection is not None:
            self._told += 1
            self._connection.send({"say": "state", "events": events, "left": left})

    def tell_soon(self, events: Callable[[], list[dict[str, object]]]) -> None:
        """Tell it what `events()` are in a moment: more of them may come until then."""
        if self._connection is None or self._telling:
            return

        def tell() -> None:
            self._telling = False
            self.tell(events())

        self._telling = True
        self._loop.call_later(TOGETHER, tell)

    def when_noted(self, then: Callable[[], object]) -> None:
        """Call `then()` when it has confirmed all that it was told, or has had its time to."""
        deadline = time.monotonic() + NOTED_TIME

        def look() -> None:
            settled = self._connection is None or self._noted >= self._told
            if settled or time.monotonic() > deadline:
                then()
            else:
                self._loop.call_later(0.005, look)

        look()

    def beat(self, raw: bytes, now: float, lost_after: float) -> None:
        """Send a heartbeat, unless the keeper itself is silent for too long."""
        connection = self._connection
        if connection is None:
            return
        if now - connection.received_at > lost_after:
            connection.close()
            self._on_gone(connection)
        else:
            connection.send_raw(raw)

    def stood_still(self, now: float) -> None:
        """This process was stopped itself: the keeper gets its full time again."""
        if self._connection is not None:
            self._connection.received_at = now

    def _on_message(self, _connection: Connection, message: dict[str, object]) -> None:
        say = message.get("say")
        if say == "noted":
            self._noted += 1
        elif say in ("shelf", "shelved", "dropped", "receiving"):
            self.on_shelf(message)

    def _on_gone(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = self.address = None
            self.on_change()
