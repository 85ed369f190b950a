"""Code that arrives after the agents have started, since it is too large for the objects of a run.

A client sends the archive into the leader's pod (`files receive`), where it appears in one step under its
name. The other workers copy it from there, piece by piece over the gang's connection: each requests the next
piece when it has the one before, so that the leader holds one piece for each of them, and heartbeats go on in
between. The archive is known by its digest, which is checked when it is unpacked; whichever leader sends a
piece, it is a piece of the same archive."""

from __future__ import annotations

import base64
import os
import time

from echelon.agent.files.beside import is_copying
from echelon.agent.loop import Loop

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

ORDER = "code"  # a request for a piece, and its answer
PATIENCE = 180.0  # seconds without a client that sends; one whose connection broke tries again for less
PIECE = 1 << 20  # bytes of the archive in one message
LOOK = 0.1  # seconds between two looks for the archive
BESIDE = 1.0  # seconds between two looks at whether a client sends


class LeadersCode:
    """The leader's part: calls `on_there()` when the archive is complete, or `on_absent(reason)` when no
    client has sent any of it for a while; answers the requests of the other workers with `send`.
    """

    def __init__(
        self,
        loop: Loop,
        bundle: dict[str, Any],
        send: Callable[[int, dict[str, object]], object],
        on_there: Callable[[], object],
        on_absent: Callable[[str], object],
    ) -> None:
        self._loop = loop
        self._path: str = bundle["sent"]
        self._patience: float = bundle.get("patience", PATIENCE)
        self._send = send
        self._on_there = on_there
        self._on_absent = on_absent
        self._descriptor: int | None = None
        self._requests: dict[int, int] = {}  # those that came before the archive
        self._cancelled = False
        self._sending_at = self._looked_at = time.monotonic()

    def begin(self) -> None:
        """Look for the archive from now on."""
        self._look()

    def cancel(self) -> None:
        """Stop, since the run is over."""
        self._cancelled = True
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def request(self, worker: int, offset: object) -> None:
        """Answer a worker, now or when the archive is there."""
        if type(offset) is not int or offset < 0 or self._cancelled:
            return
        if self._descriptor is None:
            self._requests[worker] = offset
            return
        try:
            piece = os.pread(self._descriptor, PIECE, offset)
        except OSError:
            piece = b""  # which the worker reports
        self._send(worker, {"say": ORDER, "offset": offset, "data": base64.b64encode(piece).decode()})

    def _look(self) -> None:
        if self._cancelled:
            return
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._wait()
            return
        self._on_there()
        requests, self._requests = self._requests, {}
        for worker, offset in requests.items():
            self.request(worker, offset)

    def _wait(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= BESIDE:
            self._looked_at = now
            if is_copying():
                self._sending_at = now
        if now - self._sending_at > self._patience:
            self._on_absent("the command that started the run has sent nothing for %g s" % self._patience)
        else:
            self._loop.call_later(LOOK, self._look)


class PeersCode:
    """The part of every other worker: copies the archive, and calls `on_there()`, or `on_failed(error)` when
    it cannot be written or is too short. `ask` sends a request to the leader, if there is one.
    """

    def __init__(
        self,
        bundle: dict[str, Any],
        ask: Callable[[dict[str, object]], object],
        on_there: Callable[[], object],
        on_failed: Callable[[OSError], object],
    ) -> None:
        self._path: str = bundle["sent"]
        self._size: int = bundle["size"]
        self._ask = ask
        self._on_there = on_there
        self._on_failed = on_failed
        self._have = 0
        self._done = False

    def begin(self) -> None:
        """Request the next piece: at first, and again of every leader that comes."""
        if not self._done:
            self._ask({"say": ORDER, "offset": self._have})

    def cancel(self) -> None:
        """Stop, since the run is over."""
        self._done = True

    def drop(self) -> None:
        """Delete the archive, which is unpacked; the leader keeps its own, for workers that come late."""
        try:
            os.unlink(self._path)
        except OSError:
            pass

    def take(self, message: dict[str, object]) -> None:
        """Take a piece, and request the next. One that was requested of an earlier leader is not taken
        twice.
        """
        if self._done or message.get("offset") != self._have:
            return
        try:
            self._write(base64.b64decode(str(message.get("data"))))
        except (OSError, ValueError) as error:
            self._done = True
            self._on_failed(error if isinstance(error, OSError) else OSError(str(error)))
            return
        if self._have < self._size:
            self.begin()
        else:
            self._done = True
            self._on_there()

    def _write(self, piece: bytes) -> None:
        if not piece:
            raise OSError("worker 0 has only %d of its %d bytes" % (self._have, self._size))
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with open(self._path, "ab" if self._have else "wb") as file:
            file.write(piece)
        self._have += len(piece)
