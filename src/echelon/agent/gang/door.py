"""A listening socket for who can prove the run's secret: every connection gets a fresh number to sign, and
little room and time before it has.

The leader has one for its gang, the keeper one for workers that bring their results."""

from __future__ import annotations

import socket
from collections import OrderedDict
from functools import partial

from echelon.agent.gang.wire import HANDSHAKE_TIME, Connection, fresh_nonce
from echelon.agent.loop import READ, Loop, accepted

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

MOST_UNPROVEN = 512  # connections without a proof at a time, at least; one more drops the oldest


class Door:
    """Hands each connection's first message to `on_claim(connection, nonce, message)`, with the number that
    it should have signed; connections without a proof are limited in number and time.
    """

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        room: int,
        on_claim: Callable[[Connection, str, dict[str, object]], object],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._room = max(MOST_UNPROVEN, room)
        self._on_claim = on_claim
        self._unproven: OrderedDict[Connection, str] = OrderedDict()  # each with the nonce it must sign
        listener.setblocking(False)
        loop.watch(listener, READ, self._on_connection)

    def _on_connection(self, _events: int) -> None:
        for sock in accepted(self._listener):
            if len(self._unproven) >= self._room:
                self._unproven.popitem(last=False)[0].close()
            unproven = Connection(self._loop, sock)
            nonce = fresh_nonce()
            self._unproven[unproven] = nonce
            unproven.on_message = self._on_message
            unproven.on_closed = lambda connection, _reason: self._unproven.pop(connection, None)
            unproven.send({"say": "who", "nonce": nonce})
            self._loop.call_later(HANDSHAKE_TIME, partial(self._drop, unproven))

    def _drop(self, connection: Connection) -> None:
        if self._unproven.pop(connection, None) is not None:
            connection.close()

    def _on_message(self, connection: Connection, message: dict[str, object]) -> None:
        nonce = self._unproven.pop(connection, None)
        if nonce is None:
            connection.close()
        else:
            self._on_claim(connection, nonce, message)
