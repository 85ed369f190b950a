"""The protocol between the agents of a run: lines of JSON over TCP, after each side has proved to the other
that it knows the run's secret.

The secret itself is never sent: each side signs the other's nonce (HMAC-SHA256). Before that proof a
connection may send little, and only for a short time, so that garbage or a slow attacker costs the run
nothing."""

from __future__ import annotations

import json
import os
import socket
import time

from echelon.agent.loop import READ, WRITE, Loop

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

HANDSHAKE_LIMIT = 1024  # bytes that a peer may send before its proof
HANDSHAKE_TIME = 5.0  # seconds that a peer has for its proof
MESSAGE_LIMIT = 64 * 1024 * 1024
_encode = json.JSONEncoder(separators=(",", ":")).encode
_BEAT = b'{"say":"beat"}'
_decode = json.JSONDecoder().decode


class Connection:
    """One end of a connection between two agents; it never blocks. Its owner sets the `on_` callbacks."""

    def __init__(self, loop: Loop, sock: socket.socket, limit: int = HANDSHAKE_LIMIT) -> None:
        self._loop = loop
        self._socket = sock
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._limit = limit
        self._waits = False  # for the other side to take what is pending
        self.open = True
        self.received_at = time.monotonic()
        self.on_message: Callable[[Connection, dict[str, object]], object] = lambda *_: None
        self.on_closed: Callable[[Connection, str], object] = lambda *_: None
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass  # not TCP, or closed by the peer already: the next read will show it
        loop.watch(sock, READ, self._on_ready)

    def trust(self) -> None:
        """The other side has proved itself: accept longer messages."""
        self._limit = MESSAGE_LIMIT

    def send(self, message: dict[str, object]) -> None:
        """Send a message, now or as soon as the other side takes it."""
        self.send_raw(encode(message))

    def send_raw(self, data: bytes) -> None:
        """Send a message that is encoded already (the same for many receivers)."""
        if not self.open:
            return
        self._outgoing += data
        self._write()

    def close(self) -> None:
        """Close without calling `on_closed`."""
        if self.open:
            self.open = False
            self._loop.forget(self._socket)
            self._socket.close()

    def detach(self) -> socket.socket:
        """Leave the socket to the caller: from now on it blocks, and nothing here uses it."""
        self.open = False
        self._loop.forget(self._socket)
        self._socket.setblocking(True)
        return self._socket

    def local_address(self) -> str:
        """This side's address, as the other side knows it."""
        return self._address(self._socket.getsockname)

    def peer_address(self) -> str:
        """The other side's address."""
        return self._address(self._socket.getpeername)

    def read_rest(self) -> None:
        """Read what the other side sent before it closed."""
        while self.open:
            before = self.received_at, len(self._incoming)
            self._read()
            if (self.received_at, len(self._incoming)) == before:
                return

    def drain(self, patience: float) -> None:
        """Send what is pending before the agent leaves; give up after `patience` seconds."""
        deadline = time.monotonic() + patience
        while self.open and self._outgoing and time.monotonic() < deadline:
            self._write()
            time.sleep(0.002)

    def _address(self, ask: Callable[[], tuple[object, ...]]) -> str:
        try:
            return str(ask()[0])
        except OSError:  # closed already; the loop will notice
            return "127.0.0.1"

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        if self.open and events & READ:
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(256 * 1024)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error.strerror or "connection error")
            return
        if not data:
            self._fail("the connection was closed")
            return
        self.received_at = time.monotonic()
        self._incoming += data
        if b"\n" not in data:
            if len(self._incoming) > self._limit:
                self._fail("a message is too long")
            return
        *lines, rest = bytes(self._incoming).split(b"\n")
        self._incoming = bytearray(rest)
        for line in lines:
            if not self.open:
                return
            if len(line) > self._limit:
                self._fail("a message is too long")
            elif line == _BEAT:  # a gang of ten thousand sends as many every second
                self.on_message(self, {"say": "beat"})
            else:
                self._take(line)
        if self.open and len(rest) > self._limit:
            self._fail("a message is too long")

    def _take(self, line: bytes) -> None:
        try:
            message = _decode(line.decode())
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            self.on_message(self, message)
        else:
            self._fail("a message makes no sense")

    def _write(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._fail(error.strerror or "connection error")
            return
        if self._waits != bool(self._outgoing):
            self._waits = not self._waits
            self._loop.watch(self._socket, READ | WRITE if self._waits else READ, self._on_ready)

    def _fail(self, reason: str) -> None:
        if self.open:
            self.close()
            self.on_closed(self, reason)


def encode(message: dict[str, object]) -> bytes:
    """Make the bytes of a message."""
    return _encode(message).encode() + b"\n"


def fresh_nonce() -> str:
    """A new random number, as text."""
    return os.urandom(32).hex()


def load_proofs() -> None:
    """Load what a proof takes while there is time for it, so that none waits for it later."""
    import hmac  # noqa: F401


def prove(secret: bytes, side: str, worker: int, theirs: str, mine: str) -> str:
    """Sign the other side's nonce: a proof that is useless for another side, worker or connection."""
    import hmac  # it loads OpenSSL, which a run of one worker does not need

    text = "echelon|%s|%d|%s|%s" % (side, worker, theirs, mine)
    return hmac.digest(secret, text.encode(), "sha256").hex()


def proven(expected: str, given: object) -> bool:
    """Compare proofs in constant time."""
    import hmac

    return isinstance(given, str) and hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
