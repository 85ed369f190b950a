"""From a rank's pipes to the agent's standard output and the rank's log file, line by line.

The client's `model/log.py` describes the format of the lines. Bytes stay bytes all the way: a rank's output
need not be text. A progress bar that overwrites itself with carriage returns is shown from time to time; the
log file has all of it."""

from __future__ import annotations

import json
import os
import stat
import time

from echelon.agent.loop import WRITE, Loop

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    import io
    from typing import Callable

LONGEST_LINE = 256 * 1024  # a longer line is passed on in pieces
PROGRESS_EVERY = 5.0  # seconds between two lines of a progress bar; one second for a single rank
TAIL = 8192  # bytes of a rank's last output kept for the report
BACKLOG = 1024 * 1024  # bytes waiting for a slow reader before the ranks are made to wait


class Sink:
    """The agent's standard output. It never blocks the agent: a slow reader makes `full` true instead.

    A full disk loses lines, never the run.
    """

    def __init__(self, loop: Loop, descriptor: int = 1) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._waiting = bytearray()
        self._sequence = 0
        self._volume = 0
        self._next_reminder: float = float("inf")
        self._remind: Callable[[], int] = lambda: 0
        self._on_empty: list[Callable[[], object]] = []
        self.on_drained: Callable[[], object] | None = None
        self.on_event: Callable[[dict[str, object]], object] | None = None  # called with every event, too
        self._plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if not self._plain:
            os.set_blocking(descriptor, False)

    @property
    def full(self) -> bool:
        """Whether to stop reading from the ranks for now."""
        return len(self._waiting) > BACKLOG

    def lines(self, head: bytes, lines: list[bytes], now: float) -> None:
        """Write lines that all begin with `head`, each with the next sequence number."""
        stamp = b" %.3f] " % now
        first = self._sequence
        self._sequence += len(lines)
        numbered = enumerate(lines, first)
        self._pass(b"".join([b"%b%d%b%b\n" % (head, number, stamp, line) for number, line in numbered]))

    def _pass(self, data: bytes) -> None:
        self.write(data)
        self._volume += len(data)
        if self._volume >= self._next_reminder:
            self._next_reminder = float("inf")  # what the action writes must not trigger it again
            self.remind(self._remind, self._remind())

    def event(self, kind: str, **fields: object) -> None:
        """Write an event line."""
        fields.update(kind=kind, at=round(time.time(), 3))
        self.pass_on(fields)

    def pass_on(self, event: dict[str, object]) -> int:
        """Write an event that has its kind and time already; returns its size in bytes."""
        if self.on_event is not None:
            self.on_event(event)
        return self._write_event(event)

    def state(self, events: list[dict[str, object]]) -> int:
        """Write a state line, which repeats events: `on_event` is not called. Returns its size in bytes."""
        return self._write_event({"kind": "state", "at": round(time.time(), 3), "events": events})

    def _write_event(self, event: dict[str, object]) -> int:
        text = json.dumps(event).encode()
        # An event has the number of the next line, so that a reader can count all missing lines before it.
        self._pass(b"[event %d %.3f] %b\n" % (self._sequence, time.time(), text))
        return len(text)

    def remind(self, action: Callable[[], int], after: int) -> None:
        """Call `action()` after so many more bytes, and again after as many as it returns each time."""
        self._remind = action
        self._next_reminder = self._volume + after

    def write(self, data: bytes) -> None:
        """Write, and buffer what the reader does not take now."""
        if self._waiting:
            self._waiting += data
            return
        taken = self._try(data)
        if taken < len(data):
            self._waiting += data[taken:]
            self._loop.watch(self._descriptor, WRITE, self._on_writable)

    def when_empty(self, then: Callable[[], object], patience: float) -> None:
        """Call `then()` when the reader has taken everything, or `patience` seconds have passed."""
        if not self._waiting:
            then()
            return

        def once() -> None:
            if once in self._on_empty:
                self._on_empty.remove(once)
                then()

        self._on_empty.append(once)
        self._loop.call_later(patience, once)

    def flush(self, patience: float = 15.0) -> None:
        """Write the buffer at the end of the agent; give up after `patience` seconds."""
        deadline = time.monotonic() + patience
        while self._waiting and time.monotonic() < deadline:
            taken = self._try(self._waiting)
            del self._waiting[:taken]
            if self._waiting:
                time.sleep(0.01)

    def _on_writable(self, _events: int) -> None:
        del self._waiting[: self._try(self._waiting)]
        if not self._waiting:
            self._loop.forget(self._descriptor)
            if self.on_drained is not None:
                self.on_drained()
            for action in list(self._on_empty):
                action()

    def _try(self, data: bytes | bytearray) -> int:
        done = 0
        view = memoryview(data)
        try:
            while done < len(view):
                try:
                    done += os.write(self._descriptor, view[done:])
                except BlockingIOError:
                    return done
                except OSError:  # a full disk, or the reader is gone: the run matters more than its output
                    return len(view)
        finally:
            view.release()
        return done


class RankLog:
    """One rank's log file among the results: every byte of both streams, in the order of arrival."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.trouble: OSError | None = None
        self._file: io.FileIO | None = None
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        except OSError as error:
            self.trouble = error

    def write(self, data: bytes) -> None:
        """Append, unless an earlier write failed."""
        if self._file is None:
            return
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self.trouble = error
            self.close()

    def close(self) -> None:
        """Close the file; closing it again does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Stream:
    """One output stream of a rank, or of a process for the whole worker (pip): cuts it into lines."""

    def __init__(self, sink: Sink, log: RankLog, rank: int | None, letter: str, hold: bool = True) -> None:
        self._sink = sink
        self._log = log
        begin = "[%s %s" % ("-" if rank is None else rank, letter)
        self._whole, self._piece, self._progress = ((begin + mark).encode() for mark in (" ", "+ ", "~ "))
        self._partial = b""
        self._unkept = b""  # the beginning of a line that is not in the log file yet
        self._hold = hold
        self._painted = -PROGRESS_EVERY
        self.tail = b""

    def feed(self, data: bytes) -> None:
        """Take the next piece of output."""
        self._keep(data)
        self.tail = (self.tail + data)[-TAIL:] if len(data) < TAIL else data[-TAIL:]
        now = time.time()
        lines = (self._partial + data).split(b"\n") if self._partial else data.split(b"\n")
        self._partial = lines.pop()
        if lines:
            if b"\r" in data or b"\r" in lines[0]:
                lines = [_visible_part(line) for line in lines]
            self._sink.lines(self._whole, lines, now)
        if self._partial:
            self._handle_partial(now)

    def close(self) -> None:
        """End the stream: a rest without a newline is a line too."""
        if self._partial:
            self._sink.lines(self._whole, [_visible_part(self._partial)], time.time())
            self._partial = b""
        if self._unkept:
            self._log.write(self._unkept)
            self._unkept = b""

    def _keep(self, data: bytes) -> None:
        """Write to the log file in whole lines, or the rank's two streams would cut each other's lines."""
        data = self._unkept + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > LONGEST_LINE:
            end = len(data)
        self._unkept = data[end:]
        if end:
            self._log.write(data[:end])

    def _handle_partial(self, now: float) -> None:
        if b"\r" in self._partial:
            visible = _visible_part(self._partial)
            ticks = time.monotonic()
            if ticks - self._painted >= (PROGRESS_EVERY if self._hold else 1.0):
                self._painted = ticks
                self._sink.lines(self._progress, [visible], now)
            # Only the text after the last carriage return can become a line; drop what it overwrites.
            self._partial = visible + (b"\r" if self._partial.endswith(b"\r") else b"")
        elif not self._hold or len(self._partial) >= LONGEST_LINE:
            end = _whole_characters(self._partial)
            if end:
                self._sink.lines(self._piece, [self._partial[:end]], now)
                self._partial = self._partial[end:]


def _whole_characters(data: bytes) -> int:
    """How many bytes of a piece are complete: all but the beginning of a UTF-8 character at its end."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if 0xC0 <= byte < 0xF8:  # the first byte contains the length
            return len(data) - back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else len(data)
        if not 0x80 <= byte < 0xC0:
            break
    return len(data)


def _visible_part(line: bytes) -> bytes:
    """What a terminal would show of a line with carriage returns."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]
