"""The server: a port of this machine that only this machine reaches, until the user ends it, and a bounded
number of connections, none of which may take long to say what it wants.

uvicorn has no limit for the time that a request takes to come: half requests would use up all descriptors,
and so would bodies of which a byte comes now and then, since each byte ends uvicorn's own wait for the next
request. This uses its internals, so its minor version is pinned."""

from __future__ import annotations

import asyncio
import errno
import math
import socket

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from echelon.engines.base import Engine
from echelon.errors import Unavailable
from echelon.ui.app import make_app
from echelon.ui.reading import Reading
from echelon.ui.safety import make_keys

MOST = 512
REQUEST_PATIENCE = 5.0  # seconds for a request, from its first byte to its last
_BACKLOG = 64  # connections that wait to be accepted: more would use up descriptors


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


class Server:
    """A dashboard of one engine, on a port of 127.0.0.1 (0: any that is free)."""

    def __init__(self, engine: Engine, *, port: int = 0, read_only: bool = False) -> None:
        self._socket = _listen(port)
        self._reading = Reading(engine, read_only=read_only)
        self._keys = make_keys(self._socket.getsockname()[1])
        self._server = uvicorn.Server(
            uvicorn.Config(
                make_app(self._reading, self._keys),
                http=BoundedProtocol,
                ws="wsproto",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                ws_max_size=1 << 16,
                timeout_graceful_shutdown=2,
            )
        )

    @property
    def origin(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._keys.port}"

    @property
    def address(self) -> str:
        """What to open: the token is in the fragment, which browsers send nowhere."""
        return f"{self.origin}/#token={self._keys.token}"

    def run(self) -> None:
        """Serve until `stop`, or until the process gets a signal."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._reading.feeds.close()
            self._socket.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._reading.feeds.close()
        self._server.should_exit = True


def _listen(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        taken = error.errno == errno.EADDRINUSE
        problem = "is taken" if taken else f"cannot be used: {error.strerror}"
        raise Unavailable(
            f"port {port} {problem}", hint="choose another with --port, or leave it out for one that is free"
        ) from error
    return found
