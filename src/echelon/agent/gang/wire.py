"""The protocol between the agents of a run: lines of JSON over TCP, after each side has proved to the other
that it knows the run's secret.

The secret itself is never sent: each side signs the other's nonce (HMAC-SHA256). Before that proof a
connection may send little, and only for a short time, so that garbage or a slow attacker costs the run
nothing."""

from __future__ import annotations

import hmac
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


class Connection:
    """One end of a connection between two agents; it never blocks. Its owner sets the `on_` callbacks."""

    def __init__(self, loop: Loop, sock: socket.socket, limit: int = HANDSHAKE_LIMIT) -> None:
        self._loop = loop
        self._socket = sock
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._limit = limit
        self._scanned = 0
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
        while self.open:
            end = self._incoming.find(b"\n", self._scanned)
            if end < 0:
                self._scanned = len(self._incoming)
                if self._scanned > self._limit:
                    self._fail("a message is too long")
                return
            line = bytes(self._incoming[:end])
            del self._incoming[: end + 1]
            self._scanned = 0
            if len(line) > self._limit:
                self._fail("a message is too long")
                return
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                self._fail("a message makes no sense")
                return
            self.on_message(self, message)

    def _write(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._fail(error.strerror or "connection error")
            return
        self._loop.watch(self._socket, READ | WRITE if self._outgoing else READ, self._on_ready)

    def _fail(self, reason: str) -> None:
        if self.open:
            self.close()
            self.on_closed(self, reason)


def encode(message: dict[str, object]) -> bytes:
    """Make the bytes of a message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def fresh_nonce() -> str:
    """A new random number, as text."""
    return os.urandom(32).hex()


def prove(secret: bytes, side: str, worker: int, theirs: str, mine: str) -> str:
    """Sign the other side's nonce: a proof that is useless for another side, worker or connection."""
    text = "echelon|%s|%d|%s|%s" % (side, worker, theirs, mine)
    return hmac.new(secret, text.encode(), "sha256").hexdigest()


def proven(expected: str, given: object) -> bool:
    """Compare proofs in constant time."""
    return isinstance(given, str) and hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def own_address() -> str:
    """The address that a pod's environment gives it; empty where there is none."""
    address = os.environ.get("ECHELON_POD_IP", "")
    return address if is_address(address) else ""


def is_address(given: object) -> bool:
    """Whether the value is an IP address and nothing else."""
    if not isinstance(given, str):
        return False
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, given)
        except (OSError, ValueError):
            continue
        return True
    return False
