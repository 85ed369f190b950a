"""Requests whose whole response is wanted, over connections of the standard library.

A short command makes nothing but these, and to import the HTTP library takes longer than all of its requests:
so that is left to streams, to proxies, and to addresses that are not plain. Safe to use from several
threads."""

from __future__ import annotations

import http.client
import re
import select
import ssl
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlencode, urlsplit

from echelon.values import frozen

CONNECT, READ = 5.0, 30.0  # seconds until a connection is accepted, and between two pieces of a response
# Idle connections are kept for a moment; the number of open ones is not limited here.
KEPT, KEPT_FOR = 10, 30.0
_PLAIN = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]*)?")
_GZIP = 16 + zlib.MAX_WBITS
# Of one response: lists come in pages, and one that has no end would take all memory, or all time.
MOST, PIECE = 256 << 20, 1 << 20
LONGEST = 600.0  # seconds


class Broken(Exception):
    """A request without a response; its cause says why. `never_made` if the server cannot have seen it,
    `for_good` if it never will.
    """

    def __init__(self, *, never_made: bool, for_good: bool = False) -> None:
        super().__init__()
        self.never_made = never_made
        self.for_good = for_good


class TooLong(Exception):
    """An answer that is longer than any of an API server."""


@frozen
class Answer:
    """A response as it came, unpacked."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


def is_plain(server: str) -> bool:
    """Whether an address needs no more than the standard library knows of addresses."""
    if _PLAIN.fullmatch(server) is None:
        return False
    try:
        return urlsplit(server).port != 0
    except ValueError:  # a port, or an address in brackets, that is none
        return False


class Pool:
    """Connections to one server, kept for the next request."""

    def __init__(self, server: str, tls: ssl.SSLContext, server_name: str) -> None:
        self._parts = urlsplit(server)
        self._tls = tls if self._parts.scheme == "https" else None
        if self._tls is not None:
            self._tls.set_alpn_protocols(["http/1.1"])
        self._server_name = server_name
        self._idle: deque[tuple[float, http.client.HTTPConnection]] = deque()

    def exchange(
        self,
        method: str,
        path: str,
        params: Sequence[tuple[str, str]],
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes | None,
    ) -> Answer:
        """One request and its response; raises Broken."""
        connection = self._take() or self._connect()
        try:
            asked = self._parts.path + path + (f"?{urlencode(params)}" if params else "")
            connection.putrequest(method, asked, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)  # bytes are taken as they are
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            content = _read(response)
        except TooLong as error:
            connection.close()
            raise Broken(never_made=False, for_good=True) from error
        except http.client.IncompleteRead as error:
            connection.close()
            raise Broken(never_made=False) from ConnectionResetError(str(error))
        except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
            connection.close()
            raise Broken(never_made=False) from error
        except BaseException:  # Ctrl-C in the middle of a response
            connection.close()
            raise
        self._keep(connection, closes=response.will_close)
        return Answer(status_code=response.status, headers=response.headers, content=content)  # type: ignore[arg-type]

    def close(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self._idle.pop()[1].close()

    def _take(self) -> http.client.HTTPConnection | None:
        """An idle connection that the server has not closed meanwhile."""
        while self._idle:
            try:
                since, connection = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            if time.monotonic() - since < KEPT_FOR and not _is_readable(connection):
                return connection
            connection.close()
        return None

    def _keep(self, connection: http.client.HTTPConnection, *, closes: bool) -> None:
        if closes or len(self._idle) >= KEPT:
            connection.close()
        else:
            self._idle.append((time.monotonic(), connection))

    def _connect(self) -> http.client.HTTPConnection:
        host = self._parts.hostname or ""
        port = self._parts.port or (80 if self._tls is None else 443)
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT)
        connection.default_port = port if self._parts.port is None else 0  # which `Host` leaves out
        connection.auto_open = 0  # or a connection that was closed would be made anew unnoticed, without TLS
        try:
            connection.connect()
            connection.sock.settimeout(READ)  # who takes the connection is there, however slow
            if self._tls is not None:
                connection.sock = self._tls.wrap_socket(
                    connection.sock, server_hostname=self._server_name or host
                )
        except (OSError, ValueError) as error:
            connection.close()
            raise Broken(never_made=True) from error
        return connection


def _read(response: http.client.HTTPResponse) -> bytes:
    """All of a response, unpacked; raises TooLong."""
    packed = response.headers.get("Content-Encoding", "").lower() == "gzip"
    unpacking = zlib.decompressobj(_GZIP) if packed else None

    def pieces() -> Iterator[bytes]:
        while piece := response.read(PIECE):
            yield piece if unpacking is None else unpacking.decompress(piece, MOST + 1)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        if unpacking is not None and not unpacking.eof and not unpacking.unconsumed_tail:
            raise zlib.error("it ends too early")

    return bounded(pieces())


def bounded(pieces: Iterable[bytes]) -> bytes:
    """A response from its pieces; raises TooLong if there are too many, or they come for too long."""
    content, deadline = bytearray(), time.monotonic() + LONGEST
    for piece in pieces:
        content += piece
        if len(content) > MOST:
            raise TooLong(f"its answer has more than {MOST >> 20} MiB")
        if time.monotonic() > deadline:
            raise TooLong(f"its answer did not end within {LONGEST:g} s")
    return bytes(content)


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has something to say: the server has closed it."""
    if connection.sock is None:
        return True
    look = select.poll()
    look.register(connection.sock, select.POLLIN)
    return bool(look.poll(0))
