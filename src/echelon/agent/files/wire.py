"""The protocol between the two ends of a copy: lines of JSON, and the bytes of files in chunks between them.

The stream below carries bytes both ways: a pod's `exec`, or pipes. It has no message boundaries and may break
at any moment, so every part here has a length, and a busy end sends heartbeats (`tick`): an end that is
silent for too long counts as lost.

A chunk is a line with its length and that many bytes: `65536`, or `z1234` where they are compressed; `t` is a
heartbeat between chunks. The first line that begins with `{` ends the chunks of a file.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import zlib

TYPE_CHECKING = False  # as mypy reads it; `typing` is not needed at run time
if TYPE_CHECKING:
    from typing import Any, Callable

CHUNK = 1 << 18  # bytes of a file that are read, compressed and framed together
SILENCE = 60.0  # seconds without a byte or heartbeat after which the other end counts as lost
GRACE = 30.0  # seconds after those in which a process ends by itself, before the kernel ends it
_LONGEST_LINE = 1 << 17  # two names of 4,096 bytes fit, however they are escaped
_HEARTBEAT = 5.0  # seconds after which a busy end sends a heartbeat
_BUFFER = 1 << 16  # bytes of lines that are gathered before they are written


class Broken(Exception):
    """The stream ended, or fell silent, before the copy was complete: worth a retry."""


class Garbled(ValueError):
    """The other end violates the protocol: not worth a retry."""


class Trouble(Exception):
    """The other end reports that it cannot go on: an error's name (ENOSPC), the path, the message."""

    def __init__(self, code: str, path: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.path = path


class Wire:
    """Lines and chunks over a stream.

    `receive(seconds)` returns the next bytes, none when nothing arrived in that time; it raises Broken at the
    end. `send` writes all of its argument.
    """

    def __init__(self, receive: Callable[[float], bytes], send: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._send = send
        self._came = bytearray()
        self._messages: list[dict[str, Any]] = []
        self._gathered = bytearray()
        self._last_sign = time.monotonic()
        self.rate = float("inf")  # bytes a second that the stream took lately

    def write(self, **message: object) -> None:
        """Buffer a line; `flush` writes it now."""
        self._gathered += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(self._gathered) >= _BUFFER or time.monotonic() - self._last_sign > _HEARTBEAT:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        data, self._gathered = bytes(self._gathered), bytearray()
        if data:
            begun = time.monotonic()
            self._send(data)
            if len(data) >= _BUFFER:  # a moving average by time; small writes show nothing
                took = max(time.monotonic() - begun, 1e-6) / len(data)
                self.rate = 1 / (0.8 / self.rate + 0.2 * took)
        self._last_sign = time.monotonic()

    def send_chunk(self, data: bytes, packed: bool) -> None:
        """Write bytes of a file."""
        self._gathered += b"%s%d\n" % (b"z" if packed else b"", len(data))
        self._gathered += data
        if len(self._gathered) >= _BUFFER:
            self.flush()

    def tick_chunk(self) -> None:
        """Send a heartbeat between chunks, if one is due."""
        if time.monotonic() - self._last_sign > _HEARTBEAT:
            self._gathered += b"t\n"
            self.flush()

    def tick(self) -> None:
        """Send a heartbeat between lines, if one is due."""
        if time.monotonic() - self._last_sign > _HEARTBEAT:
            self.write(tick=1)
            self.flush()

    def read(self) -> dict[str, Any]:
        """Wait for the next line that is no heartbeat; raises Trouble if the other end reports it."""
        while not self._messages:
            self._understand(self._line())
        return self._messages.pop(0)

    def raise_trouble(self) -> None:
        """Raise Trouble if it is among what has arrived already, without waiting.

        Only for an end that receives lines and no chunks.
        """
        try:
            piece = self._receive(0)
            while piece:
                self._came += piece
                piece = self._receive(0)
        finally:  # also when the stream has ended: the last lines name the cause
            while b"\n" in self._came:
                self._understand(self._line())

    def _understand(self, line: bytes) -> None:
        message = _parse(line)
        if "trouble" in message:
            raise Trouble(*(str(message.get(name, "")) for name in ("code", "path", "trouble")))
        if "tick" not in message:
            self._messages.append(message)

    def skip(self, seconds: float) -> None:
        """Wait for the next bytes, and drop them."""
        self._receive(seconds)

    def read_chunks(self, take: Callable[[bytes], None]) -> dict[str, Any]:
        """Pass on the bytes of a file as they arrive; returns the line after them."""
        while True:
            line = self._line()
            if line.startswith(b"{"):
                return _parse(line)
            if line == b"t":
                continue
            packed, digits = line.startswith(b"z"), line.lstrip(b"z")
            if not digits.isdigit() or len(digits) > 8 or int(digits) > 2 * CHUNK:
                raise Garbled("a chunk of no known length: %.40r" % line)
            if packed:
                take(_unpack(self._exactly(int(digits))))
            else:
                self._pass_on(int(digits), take)

    def _pass_on(self, left: int, take: Callable[[bytes], None]) -> None:
        while left:
            if not self._came:
                self._wait()
            piece = bytes(self._came[:left])
            del self._came[: len(piece)]
            left -= len(piece)
            take(piece)

    def _exactly(self, size: int) -> bytes:
        while len(self._came) < size:
            self._wait()
        data = bytes(self._came[:size])
        del self._came[:size]
        return data

    def _line(self) -> bytes:
        searched = 0
        while True:
            end = self._came.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._came[:end])
                del self._came[: end + 1]
                return line
            searched = len(self._came)
            if searched > _LONGEST_LINE:
                raise Garbled("a line without an end: %.40r" % bytes(self._came[:40]))
            self._wait()

    def _wait(self) -> None:
        self.flush()  # the other end may be waiting for it
        piece = self._receive(SILENCE)
        if not piece:
            raise Broken("nothing came for %d seconds" % SILENCE)
        self._came += piece


def standard_wire() -> Wire:
    """A wire over this process's standard input and output, which ends when nothing moves on it any more.

    A client that was killed may leave a pipe that is neither read nor closed: a write into it waits no
    longer than SILENCE. The two may be one open file, which is then not blocking for both.
    """
    os.set_blocking(1, False)
    outgoing = select.poll()
    outgoing.register(0, 0)  # only that its other end was closed
    outgoing.register(1, select.POLLOUT)
    postpone_end()

    def receive(seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        while select.select([0], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                piece = os.read(0, 1 << 17)
            except BlockingIOError:
                continue
            if not piece:
                raise Broken("the other end is gone")
            postpone_end()
            return piece
        return b""

    def wait_for_room(seconds: float) -> None:
        ready = outgoing.poll(max(0, int(1000 * seconds)))
        if not ready:
            raise Broken("nothing was read for %d seconds" % SILENCE)
        if any(file == 0 for file, _ in ready):
            raise Broken("the other end is gone")

    def send(data: bytes) -> None:
        rest = memoryview(data)
        deadline = time.monotonic() + SILENCE
        while rest:
            wait_for_room(deadline - time.monotonic())
            try:
                rest = rest[os.write(1, rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise Broken("the other end is gone") from error
            deadline = time.monotonic() + SILENCE
            postpone_end()

    return Wire(receive, send)


def report_trouble(wire: Wire, code: str, path: str, message: str) -> None:
    """Tell the other end that this one cannot go on, and wait until it has read that, which ends in Broken:
    it may be in the middle of a large file.
    """
    deadline = time.monotonic() + SILENCE
    wire.write(trouble=message, code=code, path=path)
    wire.flush()
    while time.monotonic() < deadline:
        wire.skip(deadline - time.monotonic())


def postpone_end() -> None:
    """Let the kernel end this process if nothing moves for a while from now on, whatever it is blocked in: a
    disk that does not answer, too. What is noticed in order is noticed after SILENCE, which is sooner.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, SILENCE + GRACE)


class Packing:
    """Whether chunks are worth compressing: only on a stream that is slower than the compression, and only as
    long as it makes them smaller.
    """

    SLOW = 24e6  # bytes a second; zlib's first level does 50 to 100 million on one core
    WORTH = 0.8  # compressed to this part of its size, or less
    PAUSE = 64  # chunks that are sent as they are after one that was not worth it

    def __init__(self) -> None:
        self._pause = 0

    def pack(self, data: bytes, rate: float) -> tuple[bytes, bool]:
        """The chunk as it should be sent at this rate, and whether that is compressed."""
        if self._pause or rate > self.SLOW:
            self._pause = max(0, self._pause - 1)
            return data, False
        packed = zlib.compress(data, 1)
        if len(packed) > self.WORTH * len(data):
            self._pause = self.PAUSE
            return data, False
        return packed, True


def _unpack(data: bytes) -> bytes:
    engine = zlib.decompressobj()
    try:
        unpacked = engine.decompress(data, CHUNK)
    except zlib.error as error:
        raise Garbled("a damaged chunk: %s" % error) from error
    if not engine.eof:
        raise Garbled("a chunk that grows too large")
    return unpacked


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise Garbled("not a line of ours: %.200r" % line) from error
    if not isinstance(message, dict):
        raise Garbled("not a line of ours: %.200r" % line)
    return message
