"""Connections of the server: a bounded number, none of which may take long to say what it wants.

uvicorn has no limit for the time that a request's head takes; half requests would use up all descriptors.
This uses its internals, so its minor version is pinned."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 512
HEAD_PATIENCE = 5.0  # seconds


class BoundedProtocol(H11Protocol):
    """HTTP, with these bounds."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.abort()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._expect_head()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the head is complete
            self._forget_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(HEAD_PATIENCE, self.transport.abort)

    def _forget_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
