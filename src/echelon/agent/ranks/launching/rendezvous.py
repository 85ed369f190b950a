"""The key-value store over which Horovod's ranks find each other: HTTP, served by worker 0, per generation.

Every request has a connection of its own and the path `/WORD:PORT/SCOPE/KEY`. A rank puts its addresses there
(PUT) and asks for those of the others (GET: 404 while they are not there) until it is connected to all; then
it takes its own back (DELETE). Horovod sends no password, but it sends whatever path follows the address that
it is given: the first part is a word that only agents and ranks of the run know, another one in every
generation. A question for what is not there yet is answered when it is, or after a second: Horovod would ask
a hundred times in that second, and every rank would."""

from __future__ import annotations

import socket
import time
from collections import OrderedDict
from functools import partial

from echelon.agent.loop import READ, WRITE, Loop, accepted

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

HOLD = 1.0  # seconds until "not there yet" is the answer
PATIENCE = 10.0  # seconds that a client has for its request, and for taking the answer
MOST_CLIENTS = 512  # clients that have not shown the word, at a time; one more drops the oldest
MOST_HEAD = 4096  # bytes of a request before its value
MOST_VALUE = 1024 * 1024  # the addresses of one rank for 7,000 others
MOST_STORED = 256 * 1024 * 1024
_OVERHEAD = 256  # bytes that a key costs beside its own and its value's
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Payload Too Large",
    431: "Request Header Fields Too Large",
    507: "Insufficient Storage",
}


class Refused(Exception):
    """A request that is answered with nothing but a status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def word(secret: bytes, generation: int) -> str:
    """What the path of every request of a generation begins with."""
    import hmac  # it loads OpenSSL, which other runs do not need here

    return hmac.digest(secret, b"echelon|rendezvous|%d" % generation, "sha256").hex()[:32]


class Rendezvous:
    """Listens at once, on a free port of one IPv4 address; `close` ends it."""

    def __init__(self, loop: Loop, address: str, word: str) -> None:
        self._loop = loop
        self._listener = socket.create_server((address, 0), backlog=1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._door = b"%s:%d" % (word.encode(), self.port)
        self._store: dict[tuple[bytes, bytes], bytes] = {}
        self._stored = 0
        self._strangers: OrderedDict[Client, None] = OrderedDict()
        self._clients: set[Client] = set()
        self._held: dict[tuple[bytes, bytes], list[Client]] = {}  # those that wait for a key
        loop.watch(self._listener, READ, self._on_connection)

    def close(self) -> None:
        """Stop listening, and drop every client."""
        if self._listener.fileno() != -1:
            self._loop.forget(self._listener)
            self._listener.close()
        for client in list(self._clients):
            client.close()
        self._held.clear()
        self._store.clear()

    def admits(self, path: bytes) -> tuple[bytes, bytes]:
        """The scope and key of a path; Refused without the word, or with another number of parts."""
        import hmac

        parts = path.split(b"/")
        if len(parts) < 2 or parts[0] or not hmac.compare_digest(parts[1], self._door):
            raise Refused(403)
        if len(parts) != 4 or not (parts[2] and parts[3]):
            raise Refused(400)
        return parts[2], parts[3]

    def knows(self, client: Client) -> None:
        """The client has shown the word."""
        self._strangers.pop(client, None)

    def answer(self, client: Client, method: bytes, key: tuple[bytes, bytes], value: bytes) -> None:
        """Carry out a whole request."""
        if method == b"PUT":
            self._put(key, value)
            client.reply(200)
            for waiting in self._held.pop(key, []):
                waiting.reply(200, value)
        elif method == b"DELETE":
            # Gloo keeps a second key for each rank, with its host's name. By now all have read both.
            for name in (key[1], b"rank_" + key[1]):
                self._drop((key[0], name))
            client.reply(200)
        elif key in self._store:
            client.reply(200, self._store[key])
        else:
            self._held.setdefault(key, []).append(client)
            self._loop.call_later(HOLD, partial(self._on_absent, client, key))

    def _on_absent(self, client: Client, key: tuple[bytes, bytes]) -> None:
        waiting = self._held.get(key, [])
        if client in waiting:
            waiting.remove(client)
            if not waiting:
                del self._held[key]
            client.reply(404)

    def _put(self, key: tuple[bytes, bytes], value: bytes) -> None:
        size = _size(key, value) - (_size(key, self._store[key]) if key in self._store else 0)
        if self._stored + size > MOST_STORED:
            raise Refused(507)
        self._store[key] = value
        self._stored += size

    def _drop(self, key: tuple[bytes, bytes]) -> None:
        if key in self._store:
            self._stored -= _size(key, self._store.pop(key))

    def _on_connection(self, _events: int) -> None:
        for sock in accepted(self._listener):
            if len(self._strangers) >= MOST_CLIENTS:
                next(iter(self._strangers)).close()
            client = Client(self._loop, sock, self)
            self._clients.add(client)
            self._strangers[client] = None
            client.on_closed = self._forget

    def _forget(self, client: Client) -> None:
        self._clients.discard(client)
        self._strangers.pop(client, None)


class Client:
    """One connection: a request, its answer, the end."""

    def __init__(self, loop: Loop, sock: socket.socket, rendezvous: Rendezvous) -> None:
        self._loop = loop
        self._socket = sock
        self._rendezvous = rendezvous
        self._incoming = bytearray()
        self._outgoing = b""
        self._request: tuple[bytes, tuple[bytes, bytes], int] | None = None  # method, key, size of the value
        self._asked = False  # its request is complete
        self._deadline = time.monotonic() + PATIENCE
        self.open = True
        self.on_closed: Callable[[Client], object] = lambda _client: None
        sock.setblocking(False)
        loop.watch(sock, READ, self._on_ready)
        loop.call_later(PATIENCE, self._on_late)

    def reply(self, status: int, value: bytes = b"") -> None:
        """Send the answer, and close."""
        if not self.open:
            return
        self._asked = True
        self._deadline = time.monotonic() + PATIENCE
        head = "HTTP/1.1 %d %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        self._outgoing = (head % (status, _REASONS[status], len(value))).encode() + value
        self._loop.watch(self._socket, WRITE, self._on_ready)
        self._write()

    def close(self) -> None:
        """Drop the connection."""
        if self.open:
            self.open = False
            self._loop.forget(self._socket)
            self._socket.close()
            self.on_closed(self)

    def _on_late(self) -> None:
        left = self._deadline - time.monotonic()
        if self.open and left > 0:
            self._loop.call_later(left, self._on_late)
        else:
            self.close()

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        elif events & READ:
            self._read()

    def _write(self) -> None:
        try:
            self._outgoing = self._outgoing[self._socket.send(self._outgoing) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._outgoing = b""
        if not self._outgoing:
            self.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(256 * 1024)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:  # gone, perhaps while it waited for a key
            self.close()
            return
        if self._asked:
            return  # more than a request is of no interest
        self._incoming += data
        try:
            self._take()
        except Refused as refused:
            self.reply(refused.status)

    def _take(self) -> None:
        if self._request is None:
            head, end, rest = bytes(self._incoming).partition(b"\r\n\r\n")
            if len(head) > MOST_HEAD:
                raise Refused(431)
            if not end:
                return
            method, path, size = read_head(head)
            self._request = method, self._rendezvous.admits(path), size
            self._rendezvous.knows(self)
            if size > MOST_VALUE:
                raise Refused(413)
            self._incoming = bytearray(rest)
        method, key, size = self._request
        if len(self._incoming) >= size:
            self._asked = True
            value, self._incoming = bytes(self._incoming[:size]), bytearray()
            self._rendezvous.answer(self, method, key, value)


def read_head(head: bytes) -> tuple[bytes, bytes, int]:
    """The method, the path and the size of the value; Refused for what is no such request."""
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise Refused(400)
    if words[0] not in (b"GET", b"PUT", b"DELETE"):
        raise Refused(405)
    sizes = {
        value.strip()
        for name, _, value in (line.partition(b":") for line in lines)
        if name.strip().lower() == b"content-length"
    }
    if not sizes and words[0] != b"PUT":
        return words[0], words[1], 0
    if not sizes:
        raise Refused(411)
    size = sizes.pop()
    if sizes or not size.isdigit() or len(size) > 18:
        raise Refused(400)
    return words[0], words[1], int(size)


def _size(key: tuple[bytes, bytes], value: bytes) -> int:
    return len(key[0]) + len(key[1]) + len(value) + _OVERHEAD
