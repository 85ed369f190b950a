"""Connections of the server: a bounded number, none of which may take long to say what it wants.

uvicorn has no limit for the time that a request takes to come: half requests would use up all descriptors,
and so would bodies of which a byte comes now and then, since each byte ends uvicorn's own wait for the next
request. This uses its internals, so its minor version is pinned."""

from __future__ import annotations

import asyncio
import math

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 512
REQUEST_PATIENCE = 5.0  # seconds for a request, from its first byte to its last


class BoundedProtocol(H11Protocol):
    """HTTP, with these bounds."""

    _request: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; of too many, the one goes that has not said for longest what it wants."""
        super().connection_made(transport)
        self._expect_request()
        if len(self.connections) > MOST:
            ours = [each for each in self.connections if isinstance(each, BoundedProtocol)]
            min(ours, key=BoundedProtocol.due).make_room()

    def due(self) -> float:
        """When it is ended, if its request has not come; who has said what it wants goes last."""
        return math.inf if self._request is None else self._request.when()

    def make_room(self) -> None:
        """End it, for another one."""
        self._forget_request()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._expect_request()
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):  # it is complete
            self._forget_request()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """It has said what it wants, and stays."""
        self._forget_request()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._forget_request()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        if self._request is None:
            self._request = self.loop.call_later(REQUEST_PATIENCE, self.transport.abort)

    def _forget_request(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None
