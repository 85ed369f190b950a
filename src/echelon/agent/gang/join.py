"""A member's connection to its leader: retried until a leader proves that it knows the secret, and again when
the connection breaks.

A worker's events go to the leader too (`forward`), and are kept while there is none, so that nothing is
missing in the leader's log."""

from __future__ import annotations

import os
import socket
import time
from collections import deque

from echelon.agent.gang.member import Member
from echelon.agent.gang.silence import OwnTicks
from echelon.agent.gang.wire import HANDSHAKE_TIME, Connection, fresh_nonce, own_address, prove, proven
from echelon.agent.loop import Loop, Timer
from echelon.agent.task import VERSION, Place, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

EAGER = 5.0  # seconds of ten attempts a second; afterwards one a second, to spare the name service
MOST_UNSENT = 1000  # events kept for the next leader; the latest matter most


class LeaderConnection:
    """One member's connection to the current leader."""

    def __init__(self, loop: Loop, task: Task, place: Place, member: Member, failures: int = 0) -> None:
        self._loop = loop
        self._task = task
        self._place = place
        self._member = member
        self._failures = failures
        self._secret = task.secret()
        self._connection: Connection | None = None
        self._welcome = False
        self._nonce = ""
        self._their_nonce = ""
        self._began = time.monotonic()
        self._give_up = self._began + task.join_timeout
        self._retry: Timer | None = None
        self._ticks = OwnTicks(task.heartbeat, self._began)
        self._unsent: deque[dict[str, object]] = deque(maxlen=MOST_UNSENT)
        self.closing = False
        self.verdict: dict[str, object] | None = (
            None  # once the run is over; for a replaced leader that does not know it
        )
        self.held_until: Callable[[], float | None] = lambda: None  # the end of holding results, if they are
        self.on_welcome: Callable[[], object] = lambda: None
        self.on_given_up: Callable[[], object] = lambda: None
        self.on_lost: Callable[[], object] = lambda: None
        self.is_copying: Callable[[], bool] = lambda: False
        member.send = self.send
        # One lookup of the leader's name blocks the agent, and must not do so for a minute. Ranks are not
        # affected: they get their environment from `os.environ`, which `putenv` does not change.
        if "RES_OPTIONS" not in os.environ:
            os.putenv("RES_OPTIONS", "timeout:1 attempts:2")
        self._dial()
        loop.call_later(task.heartbeat, self._on_heartbeat)

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

    def send(self, message: dict[str, object]) -> None:
        """Send a message, if a leader is connected."""
        if self._connection is not None and self._welcome:
            self._connection.send(message)

    def forward(self, event: dict[str, object]) -> None:
        """Send an event to the leader, now or as soon as there is one."""
        if self._welcome:
            self.send({"say": "event", "event": event})
        else:
            self._unsent.append(event)

    def _dial(self) -> None:
        self._retry = None
        if self.closing:
            return
        self._welcome = False
        try:
            sock = socket.create_connection(self._task.leader, timeout=3.0)
        except OSError:
            self._dial_again()
            return
        self._connection = Connection(self._loop, sock)
        self._connection.on_message = self._on_message
        self._connection.on_closed = self._on_closed

    def _dial_again(self) -> None:
        now = time.monotonic()
        if now >= self._give_up:
            self.on_given_up()
        elif self._retry is None and not self.closing:
            self._retry = self._loop.call_later(0.1 if now < self._began + EAGER else 1.0, self._dial)

    def _on_message(self, connection: Connection, message: dict[str, object]) -> None:
        kind = message.get("say")
        if self._welcome:
            self._member.obey(message)
        elif kind == "who" and isinstance(message.get("nonce"), str):
            self._nonce, self._their_nonce = fresh_nonce(), str(message["nonce"])
            connection.send(self._handshake())
        elif kind == "welcome":
            expected = prove(self._secret, "leader", self._place.worker, self._nonce, self._their_nonce)
            if proven(expected, message.get("proof")):
                self._on_proven()
            else:
                connection.close()
                self._dial_again()

    def _handshake(self) -> dict[str, object]:
        proof = prove(self._secret, "member", self._place.worker, self._their_nonce, self._nonce)
        handshake: dict[str, object] = {
            "say": "me",
            "worker": self._place.worker,
            "nonce": self._nonce,
            "proof": proof,
            "last_started": self._member.last_started,
            "failures": self._failures,
            "spared": self._member.spared,
            "version": VERSION,
            "finished": self.verdict is not None,
        }
        elapsed = self._member.elapsed()
        if elapsed is not None:
            handshake["elapsed"] = round(elapsed, 3)
        address = own_address()
        if address:
            handshake["address"] = address
        return handshake

    def _on_proven(self) -> None:
        self._welcome = True
        if self._connection is not None:
            self._connection.trust()
        if self.verdict is not None:
            until = self.held_until()
            left = {} if until is None else {"held_for": round(max(0.0, until - time.time()), 3)}
            self.send(dict(left, say="verdict", verdict=self.verdict))
        while self._unsent and self._welcome:
            self.forward(self._unsent.popleft())
        self.on_welcome()

    def _on_closed(self, _connection: Connection, _reason: str) -> None:
        if self.closing:
            return
        if self._welcome:
            self._welcome = False
            self._began = time.monotonic()
            self._give_up = self._began + self._task.join_timeout
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
                self.send({"say": "beat", "copying": True} if self.is_copying() else {"say": "beat"})
        self._loop.call_later(self._task.heartbeat, self._on_heartbeat)
