"""A command in a container: its input, output and exit code, over one WebSocket.

One thread per command does all input and output, so that reading and writing never wait for each other, and a
dead connection is noticed."""

from __future__ import annotations

import collections
import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Self

import msgspec

from echelon.engines.kubernetes.client import channels
from echelon.engines.kubernetes.client.answers import read_exit_code
from echelon.engines.kubernetes.client.channels import Packing, Piece
from echelon.engines.kubernetes.client.http.refusals import Request, name_server, unreachable
from echelon.engines.kubernetes.client.http.session import Pairs, Session
from echelon.engines.kubernetes.client.http.stream import Upgraded
from echelon.engines.kubernetes.client.login.access import Access
from echelon.errors import EchelonError, Unavailable, Unreachable

# Bytes that may be buffered unread, or unsent, before the server, or the writer, has to wait.
UNREAD, UNSENT = 4 << 20, 1 << 20
PIECE = 32 << 10
RECEIVE = 64 << 10
RECORD = 16 << 10  # the largest TLS record
TURNS = 16  # pieces that are received before it is time to send again
PING, SILENCE = 15.0, 60.0
NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Exec:
    """A running command. A caller that both writes and reads much needs two threads, as with any pipe."""

    def __init__(self, upgraded: Upgraded, access: Access, request: Request) -> None:
        self.exit_code: int | None = None
        self._socket, self._early = upgraded.socket, upgraded.early
        self._free = upgraded.close
        self._access = access
        self._request = request
        self._packing = Packing()
        self._has_end = upgraded.headers["sec-websocket-protocol"] == channels.V5
        self._changed = threading.Condition()
        self._unread: collections.deque[tuple[int, bytes]] = collections.deque()
        self._unsent: collections.deque[tuple[int, bytes]] = collections.deque()
        self._amount_unread = self._amount_unsent = 0
        self._packed = memoryview(b"")
        self._received_at = self._pinged_at = time.monotonic()
        self._sent_at = 0.0
        self._status = b""
        self._over = self._closing = False
        self._trouble: EchelonError | None = None
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="exec", daemon=True)
        self._thread.start()

    def read(self, timeout: float | None = None) -> tuple[int, bytes] | None:
        """Output of the command (1 standard output, 2 standard error), or None when it has ended.

        Raises TimeoutError if nothing arrives in time, Unreachable if the connection is lost, and Refused if
        the command could not be run."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._unread or self._over, timeout):
                raise TimeoutError(f"nothing from the command within {timeout:g} s")
            if not self._unread:
                if self._trouble is not None:
                    raise self._trouble
                return None
            channel, data = self._unread.popleft()
            was_full = self._amount_unread >= UNREAD
            self._amount_unread -= len(data)
            if was_full and self._amount_unread < UNREAD:
                self._ring()
            return channel, data

    def write(self, data: bytes) -> None:
        """Send input to the command. Blocks while too much is unsent; BrokenPipeError once it has ended."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE):
            self._post(channels.INPUT, bytes(view[start : start + PIECE]))

    def close_stdin(self) -> None:
        """Close the command's standard input."""
        if not self._has_end:
            raise Unavailable(
                f"{name_server(self._access)} cannot tell a command that its input has ended",
                hint="Kubernetes 1.30 or newer can; end the command in another way",
            )
        with contextlib.suppress(BrokenPipeError):  # the command has ended
            self._post(channels.END, bytes((channels.INPUT,)))

    def resize(self, width: int, height: int) -> None:
        """Set the terminal size of a command with a terminal."""
        with contextlib.suppress(BrokenPipeError):
            self._post(channels.SIZE, msgspec.json.encode({"Width": width, "Height": height}))

    def close(self) -> None:
        """Close the connection. The command is not killed, but one that loses its streams usually ends."""
        with self._changed:
            self._closing = True
        self._ring()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post(self, channel: int, data: bytes) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._amount_unsent < UNSENT or self._over)
            if self._over:
                raise self._trouble or BrokenPipeError("the command has ended")
            self._unsent.append((channel, data))
            self._amount_unsent += len(data)
        self._ring()

    def _ring(self) -> None:
        # A full socket wakes the thread already; a closed one means that the thread has ended.
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    # What follows runs in the thread.

    def _run(self) -> None:
        trouble: EchelonError | None = None
        try:
            self._exchange()
            if self._status or not self._closing:
                trouble = self._read_status()
        except Exception as error:  # noqa: BLE001 - any failure must reach the reader
            trouble = self._read_status() if self._status else unreachable(error, self._access)
        with contextlib.suppress(Exception):  # it is over either way
            self._free()
        with self._changed:
            self._over, self._trouble = True, trouble
            self._changed.notify_all()
        self._bell.close()
        self._ear.close()

    def _exchange(self) -> None:
        """Receive and send until the server closes the connection, or `close` is called."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            while not self._closing:
                more = self._receive()
                if more is None:
                    break
                self._send()
                self._check_peer()
                events = self._interest()
                if events:
                    selector.register(self._socket, events)
                selector.select(0 if more else PING)
                if events:
                    selector.unregister(self._socket)
                with contextlib.suppress(BlockingIOError):
                    self._ear.recv(4096)
        with contextlib.suppress(OSError):  # the close message, if the connection still stands
            self._socket.send(bytes(self._packed) + self._packing.close_message())

    def _interest(self) -> int:
        reading = 0 if self._is_full() else selectors.EVENT_READ
        return reading | (selectors.EVENT_WRITE if self._packed or self._unsent else 0)

    def _is_full(self) -> bool:
        return self._amount_unread >= UNREAD

    def _receive(self) -> bool | None:
        """Take what has arrived. True if more may be there already, None when the server has closed."""
        for _ in range(TURNS):
            if self._is_full():
                self._received_at = time.monotonic()  # our buffer is full: the server is not silent
                return False
            data, self._early = self._early, b""
            try:
                data = data or self._socket.recv(RECEIVE)
            except NOT_YET:
                return False
            if not data:
                raise ConnectionResetError("the connection ended in the middle")
            self._received_at = time.monotonic()
            for event in self._packing.unpack(data):
                if isinstance(event, Piece):
                    self._deliver(event)
                elif isinstance(event, channels.Ping):
                    self._packed = memoryview(bytes(self._packed) + self._packing.pong(event.data))
                else:
                    return None
        return True

    def _deliver(self, piece: Piece) -> None:
        if piece.channel == channels.STATUS:
            self._status += piece.data
        elif piece.channel in (channels.OUTPUT, channels.ERRORS) and piece.data:
            with self._changed:
                self._unread.append((piece.channel, piece.data))
                self._amount_unread += len(piece.data)
                self._changed.notify_all()

    def _send(self) -> None:
        for _ in range(TURNS):
            if not self._packed:
                with self._changed:
                    if not self._unsent:
                        return
                    channel, data = self._unsent.popleft()
                    self._amount_unsent -= len(data)
                    self._changed.notify_all()
                self._packed = memoryview(self._packing.pack(channel, data))
            try:
                self._packed = self._packed[self._socket.send(self._packed[:RECORD]) :]
            except NOT_YET:
                return
            self._sent_at = time.monotonic()

    def _check_peer(self) -> None:
        """Ping the server regularly; raise TimeoutError when it is silent for too long."""
        now = time.monotonic()
        # A command that does not read its input blocks our pings, too.
        if now - self._received_at > (SILENCE if self._received_at >= self._sent_at else 5 * SILENCE):
            raise TimeoutError
        if now - self._pinged_at >= PING:
            self._pinged_at = now
            self._packed = memoryview(bytes(self._packed) + self._packing.ping())

    def _read_status(self) -> EchelonError | None:
        try:
            self.exit_code = read_exit_code(self._status, self._request, self._access)
        except EchelonError as error:
            return error
        return None


def begin_exec(
    session: Session,
    path: str,
    request: Request,
    command: Sequence[str],
    *,
    container: str,
    stdin: bool,
    tty: bool,
) -> Exec:
    """Start a command in the container of the pod that `path` names."""
    wanted = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    params = [("container", container), *(("command", argument) for argument in command)]
    params += [(name, "true") for name, value in wanted.items() if value]
    return Exec(open_channels(session, path, request, params), session.access, request)


def open_channels(session: Session, path: str, request: Request, params: Pairs) -> Upgraded:
    """A WebSocket with Kubernetes' channels."""
    key = channels.new_key()
    upgraded = session.upgrade(path, request, params=params, headers=channels.handshake(key))
    if not channels.is_answer_to(key, upgraded.headers):
        upgraded.close()
        raise Unreachable(
            f"{name_server(session.access)} does not speak {channels.V5} or {channels.V4}",
            hint="a proxy between here and the server may not let WebSockets through",
        )
    return upgraded
