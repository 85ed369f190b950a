"""The server: a port of this machine that only this machine reaches, until the user ends it."""

from __future__ import annotations

import errno
import socket

import uvicorn

from echelon.engines.base import Engine
from echelon.errors import Unavailable
from echelon.ui.app import make_app
from echelon.ui.connections import BoundedProtocol
from echelon.ui.reading import Reading
from echelon.ui.safety import make_keys

_BACKLOG = 64  # connections that wait to be accepted: more would use up descriptors


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
