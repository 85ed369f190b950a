"""A socket of the agent's for processes of its own machine, which prove that they know the run's secret."""

from __future__ import annotations

import os
import socket

from echelon.agent.gang.door import Door
from echelon.agent.gang.wire import Connection, prove, proven
from echelon.agent.loop import Loop
from echelon.agent.ranks import sockets

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

_BACKLOG = 256


class LocalSocket:
    """Hands each caller that has proved itself as `side` to `on_caller(connection)`."""

    def __init__(
        self,
        loop: Loop,
        folder: str,
        name: str,
        side: str,
        secret: bytes,
        on_caller: Callable[[Connection], object],
    ) -> None:
        self._loop = loop
        self._path = os.path.join(folder, name)
        self._side = side
        self._secret = secret
        self._on_caller = on_caller
        os.makedirs(folder, mode=0o700, exist_ok=True)
        try:
            os.unlink(self._path)  # left by an agent that was killed here
        except FileNotFoundError:
            pass
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            sockets.inside(folder, name, self._listener.bind)
        finally:
            os.umask(before)
        self._listener.listen(_BACKLOG)
        self._door = Door(loop, self._listener, _BACKLOG, self._on_claim)

    def close(self) -> None:
        """Accept no more callers."""
        self._loop.forget(self._listener)
        self._listener.close()
        try:
            os.unlink(self._path)
        except OSError:
            pass

    def _on_claim(self, connection: Connection, nonce: str, message: dict[str, object]) -> None:
        theirs = message.get("nonce")
        if not isinstance(theirs, str) or not proven(
            prove(self._secret, self._side, 0, nonce, theirs), message.get("proof")
        ):
            connection.close()
            return
        connection.trust()
        connection.on_closed = lambda *_: None
        connection.send({"say": "welcome", "proof": prove(self._secret, "agent", 0, theirs, nonce)})
        self._on_caller(connection)
