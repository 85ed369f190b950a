"""Connections that live longer than a request: logs that are followed, watches, and other protocols.

A `Stream` is an iterator that any thread may close, also while another thread waits in it: following a
hundred pods takes a thread each, and all must end at once. The request is sent when the first piece is asked
for, since the response to a silent container's log does not begin before its first line."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from echelon.engines.kubernetes.client.http.direct import TooLong
from echelon.errors import EchelonError, Unavailable
from echelon.values import frozen

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

# A peer that vanishes without closing is noticed after IDLE + PROBES * BETWEEN seconds.
IDLE, BETWEEN, PROBES = 15, 5, 4
LONGEST_LINE = 64 << 20  # bytes; the largest object of an API server has a few


@frozen
class Upgraded:
    """A connection after the switch to another protocol; its socket does not block."""

    socket: socket.socket
    early: bytes  # bytes read from it beyond the response
    headers: Mapping[str, str]
    close: Callable[[], None]


class Connection:
    """The connection of one stream, shared with no other request, so that any thread may cut it."""

    def __init__(self) -> None:
        self.is_cut = threading.Event()
        self.client: httpx2.Client | None = None
        self._socket: socket.socket | None = None

    def trace(self, _event: str, info: Mapping[str, Any]) -> None:
        """The HTTP library's trace callback; the socket that it names last is the one in use."""
        made = getattr(info.get("return_value"), "get_extra_info", None)
        found = made("socket") if made else None
        if found is not None:
            self._socket = found
            keep_alive(found)
            if self.is_cut.is_set():
                self._shut()

    def cut(self) -> None:
        """Wake a thread that reads from the connection; it finds the end of the stream."""
        self.is_cut.set()
        self._shut()

    def close(self) -> None:
        """Close the connection; no thread may be reading from it."""
        self.is_cut.set()
        if self.client is not None:
            self.client.close()

    def _shut(self) -> None:
        # Closing a socket does not wake a thread that reads from it; shutting it does. TLS is left as it is.
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class Stream(Iterator[T], Generic[T]):
    """A response, decoded piece by piece. `translate` turns a broken connection into the error to raise, or
    None for a normal end.
    """

    def __init__(
        self,
        send: Callable[[Connection], httpx2.Response],
        decode: Callable[[Iterable[bytes]], Iterator[T]],
        translate: Callable[[Exception], EchelonError | None],
    ) -> None:
        self._connection = Connection()
        self._send = send
        self._decode = decode
        self._translate = translate
        self._pieces: Iterator[T] | None = None
        self._response: httpx2.Response | None = None
        self._busy = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        with self._busy:
            if self._connection.is_cut.is_set():
                raise StopIteration
            try:
                if self._pieces is None:
                    self._response = self._send(self._connection)
                    self._pieces = self._decode(self._response.iter_raw())
                return next(self._pieces)
            except Exception as error:
                ended = isinstance(error, StopIteration) or self._connection.is_cut.is_set()
                self._end()
                trouble = None if ended else self._trouble(error)
                if trouble is None:
                    raise StopIteration from None
                raise trouble from error

    def close(self) -> None:
        """End the stream, from any thread; its connection is closed afterwards."""
        self._connection.cut()
        with self._busy:
            self._end()

    def _trouble(self, error: Exception) -> EchelonError | None:
        return error if isinstance(error, EchelonError) else self._translate(error)

    def _end(self) -> None:
        with contextlib.suppress(Exception):  # it is over either way
            if self._response is not None:
                self._response.close()
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._end()


def switch_protocol(response: httpx2.Response, connection: Connection) -> Upgraded:
    """The connection of a response that agrees to another protocol."""
    import httpcore2

    stream = response.extensions["network_stream"]
    if isinstance(stream.get_extra_info("ssl_object"), ssl.SSLObject):
        raise Unavailable(
            "commands in containers cannot be run through a proxy that is itself https://",
            hint="use an http:// proxy: what passes through it is encrypted all the same",
        )
    try:
        early = stream.read(65536, timeout=0.001)
    except httpcore2.ReadTimeout:
        early = b""
    raw: socket.socket = stream.get_extra_info("socket")
    raw.setblocking(False)

    def close() -> None:
        response.close()
        connection.close()

    return Upgraded(socket=raw, early=early, headers=response.headers, close=close)


def keep_alive(connection: socket.socket) -> None:
    """Let the operating system notice a vanished peer, also while neither side writes."""
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if idle is not None:
            connection.setsockopt(socket.IPPROTO_TCP, idle, IDLE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, BETWEEN)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


def split_lines(pieces: Iterable[bytes], *, with_rest: bool = False) -> Iterator[bytes]:
    """The lines among pieces that are cut anywhere; what follows the last line's end only `with_rest`."""
    return itertools.chain.from_iterable(split_batches(pieces, with_rest=with_rest))


def split_batches(pieces: Iterable[bytes], *, with_rest: bool = False) -> Iterator[list[bytes]]:
    """The same in batches, one per piece: faster for a caller that takes many lines. Raises TooLong for a
    line without an end.
    """
    started: list[bytes] = []
    size = 0
    for piece in pieces:
        first, *more = piece.split(b"\n")
        started.append(first)
        size += len(first)
        if more:
            more.insert(0, b"".join(started))
            started = [more.pop()]
            size = len(started[0])
            yield more
        if size > LONGEST_LINE:
            raise TooLong(f"a line of its answer has more than {LONGEST_LINE >> 20} MiB")
    if with_rest and any(started):
        yield [b"".join(started)]
