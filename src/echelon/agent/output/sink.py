"""From a rank's pipes to the agent's standard output and the rank's log file, line by line.

The client's `model/output/log.py` describes the format of the lines. Bytes stay bytes all the way: a rank's
output need not be text. What overwrites itself (`painting.py`), a progress bar, is shown from time to time as
one line; the log file has all of it."""

from __future__ import annotations

import json
import os
import stat
import time

from echelon.agent.loop import WRITE, Loop, Timer

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    import io
    from typing import Callable

    from echelon.agent.output.painting import Painting

LONGEST_LINE = 256 * 1024  # a longer line is passed on in pieces
# In a pod, too: container runtimes cut a line after 16 KiB, and a log that is rotated there would begin with
# the rank's own words instead of a mark.
LONGEST_RECORD = 16 * 1024 - 64
PROGRESS_EVERY = 5.0  # seconds between two lines of a progress bar
PROGRESS_HERE = 1.0  # the same where a client reads them from a file, or sits before a single rank
TAIL = 8192  # bytes of a rank's last output kept for the report
BACKLOG = 1024 * 1024  # bytes waiting for a slow reader before the ranks are made to wait
TRY_AGAIN = 1.0  # seconds after which lines are written again to a disk that was full


class Sink:
    """The agent's standard output. It never blocks the agent: a slow reader makes `full` true instead.

    A full disk loses lines, never the run: that is told once, and the end of the run says it, too. A line
    that was cut there ends before the next one begins.
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
        self._torn = False  # the file ends in the middle of a line
        self._lost = False  # lines were lost, and that was told
        self.missing: list[str] = []  # what lacks lines, as it was told
        self._again_at = 0.0  # when the next write to a full disk is worth a try
        self.on_drained: Callable[[], object] | None = None
        self.on_event: Callable[[dict[str, object]], object] | None = None  # called with every event, too
        self._plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if not self._plain:
            os.set_blocking(descriptor, False)
        self.longest = LONGEST_LINE if self._plain else LONGEST_RECORD  # bytes of one line

    @property
    def full(self) -> bool:
        """Whether to stop reading from the ranks for now."""
        return len(self._waiting) > BACKLOG

    @property
    def is_file(self) -> bool:
        """Whether readers take as much of it as they want, when they want."""
        return self._plain

    def call_later(self, delay: float, action: Callable[[], object]) -> Timer:
        """Call `action()` after `delay` seconds."""
        return self._loop.call_later(delay, action)

    def lines(self, mark: bytes, lines: list[bytes], now: float) -> None:
        """Write lines that all have the same mark, each with the next sequence number before it."""
        stamp = self._stamp(now)
        first = self._sequence
        self._sequence += len(lines)
        numbered = enumerate(lines, first)
        self._pass(b"".join([b"%b%d%b%b\n" % (stamp, number, mark, line) for number, line in numbered]))

    def _stamp(self, now: float) -> bytes:
        """The time, where no container runtime notes it with every line."""
        return b"%.3f " % now if self._plain else b""

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

    def tell_missing(self, what: str, error: OSError) -> None:
        """Tell, once for each `what`, that it lacks lines from now on."""
        what = "%s lacks lines: %s" % (what, error.strerror)
        if what not in self.missing:
            self.missing.append(what)
        self.event("note", reason="%s; the run goes on" % what, missing=[what])

    def _write_event(self, event: dict[str, object]) -> int:
        text = json.dumps(event).encode()
        # An event has the number of the next line, so that a reader can count all missing lines before it.
        self._pass(b"%b%d [event] %b\n" % (self._stamp(time.time()), self._sequence, text))
        return len(text)

    def remind(self, action: Callable[[], int], after: int) -> None:
        """Call `action()` after so many more bytes, and again after as many as it returns each time."""
        self._remind = action
        self._next_reminder = self._volume + after

    def write(self, data: bytes) -> None:
        """Write, and buffer what the reader does not take now."""
        if self._plain:
            self._keep(data)
            return
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

    def _keep(self, data: bytes) -> None:
        """Write whole lines to a file, as far as there is room."""
        if self._again_at and time.monotonic() < self._again_at:
            return
        if self._torn:
            data = b"\n" + data
        view, done = memoryview(data), 0
        try:
            while done < len(view):
                done += os.write(self._descriptor, view[done:])
        except OSError as error:
            self._again_at = time.monotonic() + TRY_AGAIN
            if not self._lost:
                self._lost = True
                self.tell_missing("the output that is shown", error)
        else:
            self._again_at = 0.0
        if done:
            self._torn = data[done - 1 : done] != b"\n"

    def _try(self, data: bytes | bytearray) -> int:
        done = 0
        view = memoryview(data)
        try:
            while done < len(view):
                try:
                    done += os.write(self._descriptor, view[done:])
                except BlockingIOError:
                    return done
                except OSError:  # the reader is gone: the run matters more than its output
                    return len(view)
        finally:
            view.release()
        return done


class RankLog:
    """One rank's log file among the results: every byte of both streams, in the order of arrival."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.trouble: OSError | None = None
        self.on_trouble: Callable[[OSError], object] = lambda _error: None  # called when lines get lost
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
            self.on_trouble(error)

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
        stream, whose = "e" if letter == "e" else "", "-" if rank is None else rank
        self._whole, self._piece, self._progress = (
            ("%s%s [%s] " % (stream, flag, whose)).encode() for flag in ("", "+", "~")
        )
        self._partial = b""
        self._unkept = b""  # the beginning of a line that is not in the log file yet
        self._hold = hold
        self._painting: Painting | None = None  # what may still be overwritten
        self._seen = b""  # of it, what was shown last
        self._seen_at = float("-inf")
        self._timer: Timer | None = None
        self.tail = b""

    def feed(self, data: bytes) -> None:
        """Take the next piece of output."""
        self._keep(data)
        self.tail = (self.tail + data)[-TAIL:] if len(data) < TAIL else data[-TAIL:]
        if b"\r\n" in data:
            data = data.replace(b"\r\n", b"\n")
        if self._painting is not None or self._is_painted(data):
            self._paint(data)
            return
        lines = (self._partial + data).split(b"\n") if self._partial else data.split(b"\n")
        self._partial = lines.pop()
        if lines:
            self._pass(lines)
        if self._partial:
            self._handle_partial()

    def show(self, state: str) -> None:
        """Show a state that the rank tells otherwise than by its output, as that of a bar."""
        self._show_progress(state.encode())

    def close(self) -> None:
        """End the stream: a rest without a newline is a line too."""
        if self._timer is not None:
            self._timer.cancel()
        if self._painting is not None:
            painting, self._painting = self._painting, None
            self._show_progress(b"")
            self._pass(painting.close())
        self._show_progress(b"")
        if self._partial:
            self._pass([self._partial])
            self._partial = b""
        if self._unkept:
            self._log.write(self._unkept)
            self._unkept = b""

    def _pass(self, lines: list[bytes]) -> None:
        """Pass whole lines on; those that are too long in pieces."""
        if not lines:
            return
        longest, now = self._sink.longest, time.time()
        if max(map(len, lines)) <= longest:
            self._sink.lines(self._whole, lines, now)
            return
        for line in lines:
            *pieces, last = _cut(line, longest)
            self._sink.lines(self._piece, pieces, now)
            self._sink.lines(self._whole, [last], now)

    def _keep(self, data: bytes) -> None:
        """Write to the log file in whole lines, or the rank's two streams would cut each other's lines."""
        data = self._unkept + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > LONGEST_LINE:
            end = len(data)
        self._unkept = data[end:]
        if end:
            self._log.write(data[:end])

    def _is_painted(self, data: bytes) -> bool:
        recent = self._partial[-16:] + data
        if b"\r" not in recent and b"\x1b" not in recent:
            return False
        from echelon.agent.output.painting import is_painted  # `later.py`

        return is_painted(recent)

    def _paint(self, data: bytes = b"") -> None:
        """Have data interpreted, pass on the lines that are final, and show the progress if it is time."""
        if self._painting is None:
            from echelon.agent.output.painting import Painting

            self._painting, self._partial = Painting(self._partial), b""
        painting, ticks = self._painting, time.monotonic()
        lines = painting.feed(data, ticks) if data else painting.settle(ticks)
        progress = painting.progress()
        every = (
            PROGRESS_EVERY if self._hold and not self._sink.is_file else min(PROGRESS_EVERY, PROGRESS_HERE)
        )
        if painting.done:
            self._show_progress(b"")  # before the line that it has become
        self._pass(lines)
        if progress and ticks - self._seen_at >= every:
            self._seen_at = ticks
            self._show_progress(progress)
        if painting.done:
            self._painting, self._partial = None, painting.rest
            if self._partial:
                self._handle_partial()
        else:
            times = [
                painting.waits_until(),
                self._seen_at + every if progress not in (b"", self._seen) else None,
            ]
            self._wake_at(min((each for each in times if each is not None), default=None))

    def _wake_at(self, ticks: float | None) -> None:
        """Look again then, or before: a bar is painted too often to set the clock every time."""
        if ticks is None or (self._timer is not None and self._timer.at <= ticks):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._sink.call_later(max(0.0, ticks - time.monotonic()), self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._painting is not None:
            self._paint()

    def _show_progress(self, text: bytes) -> None:
        """Show the state of what is painted; nothing means that it is over."""
        if text != self._seen:
            self._seen = text
            self._sink.lines(self._progress, [text[: self._sink.longest]], time.time())

    def _handle_partial(self) -> None:
        if not self._hold or len(self._partial) >= self._sink.longest:
            end = _whole_characters(self._partial)
            if end:
                pieces = _cut(self._partial[:end], self._sink.longest)
                self._sink.lines(self._piece, pieces, time.time())
                self._partial = self._partial[end:]


def _cut(data: bytes, longest: int) -> list[bytes]:
    """Pieces of at most so many bytes, one at least, each of whole UTF-8 characters."""
    pieces = []
    while len(data) > longest:
        end = _whole_characters(data[:longest]) or longest
        pieces.append(data[:end])
        data = data[end:]
    return [*pieces, data]


def _whole_characters(data: bytes) -> int:
    """How many bytes of a piece are complete: all but the beginning of a UTF-8 character at its end."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if 0xC0 <= byte < 0xF8:  # the first byte contains the length
            return len(data) - back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else len(data)
        if not 0x80 <= byte < 0xC0:
            break
    return len(data)
