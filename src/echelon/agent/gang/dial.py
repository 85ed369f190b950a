"""A connection to the run's leader, from a side that is not the leader: made again until a leader proves that
it knows the secret, and again when the connection breaks.

What the side says of itself, and what it does with the leader's messages, is its own matter: `join.py` for
a worker, `keep/keeper.py` for the keeper."""

from __future__ import annotations

import os
import socket
import time

from echelon.agent.address import own_address
from echelon.agent.gang.lookup import Lookup
from echelon.agent.gang.silence import OwnTicks
from echelon.agent.gang.wire import HANDSHAKE_TIME, Connection, fresh_nonce, load_proofs, prove, proven
from echelon.agent.loop import Loop, Timer
from echelon.agent.task import VERSION, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

EAGER = 5.0  # seconds of many attempts a second; afterwards one a second, to spare the name service
SMALL = 32  # workers of a gang that may ask the name service more often
CONNECT = 3.0  # seconds for one attempt to connect
QUICK = 0.3  # seconds for one while there are two ways to the leader: neither must keep the other waiting


class Dial:
    """The connection of one side, `member` or `keeper`, to the current leader. `number` is the worker's, or
    one that no worker has; `patience` how long to look for a leader before `on_given_up`.
    """

    def __init__(self, loop: Loop, task: Task, side: str, number: int, patience: float) -> None:
        self._loop = loop
        self._task = task
        self._side = side
        self._number = number
        self._patience = patience
        self._secret = task.secret()
        self._connection: Connection | None = None
        self._welcome = False
        self._nonce = ""
        self._their_nonce = ""
        self._began = time.monotonic()
        self._give_up = self._began + patience
        self._retry: Timer | None = None
        # Eight questions of each worker of a large gang at once would be much for the name service.
        self._lookup = Lookup(task.leader_pod if len(task.places) <= SMALL else None)
        self._ticks = OwnTicks(task.heartbeat, self._began)
        self.closing = False
        self.on_given_up: Callable[[], object] = lambda: None
        self.on_lost: Callable[[], object] = lambda: None
        # One lookup of the leader's name blocks the agent, and must not do so for a minute. Ranks are not
        # affected: they get their environment from `os.environ`, which `putenv` does not change.
        if "RES_OPTIONS" not in os.environ:
            os.putenv("RES_OPTIONS", "timeout:1 attempts:2")

    def begin(self) -> None:
        """Look for the leader from now on."""
        self._dial()
        self._loop.call_later(self._task.heartbeat, self._on_heartbeat)

    @property
    def connected(self) -> bool:
        """Whether the leader has proved itself and receives messages."""
        return self._welcome

    def close(self) -> None:
        """Send what is pending, and close."""
        self.closing = True
        if self._connection is not None:
            self._connection.drain(1.0)
            self._connection.close()
        self._welcome = False

    def send(self, message: dict[str, object]) -> None:
        """Send a message, if a leader is connected."""
        if self._connection is not None and self._welcome:
            self._connection.send(message)

    # What a side does of its own

    def greeting(self) -> dict[str, object]:
        """What the side says of itself beside its proof."""
        raise NotImplementedError

    def obey(self, message: dict[str, object]) -> None:
        """Take a message of the leader."""
        raise NotImplementedError

    def welcomed(self) -> None:
        """The leader has proved itself."""

    # The connection

    def _dial(self) -> None:
        self._retry = None
        if self.closing:
            return
        self._welcome = False
        sock = self._connect()
        if sock is None:
            load_proofs()
            self._dial_again()
            return
        self._connection = Connection(self._loop, sock)
        self._connection.on_message = self._on_message
        self._connection.on_closed = self._on_closed

    def _connect(self) -> socket.socket | None:
        """Connect to the leader's own address, where that is known already, or else to the Service's."""
        host, port = self._task.leader
        pod = self._lookup.address(time.monotonic() - self._began)
        if pod is not None:
            try:
                return socket.create_connection((pod, port), timeout=QUICK)
            except ConnectionRefusedError:
                pass  # the pod is there before its agent listens
            except OSError:
                self._lookup.end()
        try:
            return socket.create_connection((host, port), timeout=QUICK if self._lookup.goes_on else CONNECT)
        except OSError:
            return None

    def _dial_again(self) -> None:
        now = time.monotonic()
        if now >= self._give_up:
            self.on_given_up()
        elif self._retry is None and not self.closing:
            pause = until_next(now - self._began, len(self._task.places))
            self._retry = self._loop.call_later(pause, self._dial)

    def _on_message(self, connection: Connection, message: dict[str, object]) -> None:
        kind = message.get("say")
        if self._welcome:
            self.obey(message)
        elif kind == "who" and isinstance(message.get("nonce"), str):
            self._nonce, self._their_nonce = fresh_nonce(), str(message["nonce"])
            connection.send(self._handshake())
        elif kind == "welcome":
            expected = prove(self._secret, "leader", self._number, self._nonce, self._their_nonce)
            if proven(expected, message.get("proof")):
                self._welcome = True
                self._lookup.end()  # the next leader has another address
                connection.trust()
                self.welcomed()
            else:
                connection.close()
                self._dial_again()

    def _handshake(self) -> dict[str, object]:
        handshake: dict[str, object] = {
            "say": "me",
            "side": self._side,
            "worker": self._number,
            "nonce": self._nonce,
            "proof": prove(self._secret, self._side, self._number, self._their_nonce, self._nonce),
            "version": VERSION,
        }
        handshake.update(self.greeting())
        address = own_address()
        if address:
            handshake["address"] = address
        return handshake

    def _on_closed(self, _connection: Connection, _reason: str) -> None:
        if self.closing:
            return
        if self._welcome:
            self._welcome = False
            self._began = time.monotonic()
            self._give_up = self._began + self._patience
            self.on_lost()
        self._dial_again()

    def _on_heartbeat(self) -> None:
        now = time.monotonic()
        still = self._ticks.stood_still(now)
        if still:
            self._give_up += still
            if self._connection is not None:
                self._connection.received_at = now
        if not self._welcome and now >= self._give_up:
            self.on_given_up()
        elif self._connection is not None and self._connection.open:
            silent = now - self._connection.received_at
            if silent > (self._task.lost_after if self._welcome else HANDSHAKE_TIME):
                self._connection.close()
                self._on_closed(self._connection, "the leader sent nothing for %g s" % silent)
            else:
                self.send({"say": "beat"})
        self._loop.call_later(self._task.heartbeat, self._on_heartbeat)


def until_next(waited: float, workers: int) -> float:
    """Seconds until the next attempt. In a cluster the leader's address is refused for the first moments, and
    all ranks wait for the last worker that joins.
    """
    if waited >= EAGER:
        return 1.0
    return 0.025 if workers <= SMALL else 0.1
