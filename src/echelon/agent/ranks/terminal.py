"""The pseudo-terminal of a single rank, and its connection to the terminal that the user sits at.

The agent holds it, so that the rank keeps a terminal when the user's has gone. Keys travel as they are typed:
the pseudo-terminal turns Ctrl-C into SIGINT for the processes in its foreground, or leaves it to a program
that wants to read it. Only Ctrl-Z is handled here: a rank leads its session, and the kernel does not stop a
process group that no shell of the same session could continue."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import struct
import termios
import time

from echelon.agent.loop import READ, WRITE, Loop, Timer
from echelon.agent.ranks import frames
from echelon.agent.ranks.processes import die_with_parent

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

BACKLOG = 256 * 1024  # bytes that wait for the user's terminal before the rank is made to wait
PATIENCE = 10.0  # seconds that the rank waits for a terminal that takes nothing; then the rank goes on
_MOST_KEYS = 64 * 1024  # keys kept for a rank that reads none; what is typed beyond is lost
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_READ = (b"0", b"63")  # the number of that system call, on x86-64 and on ARM
_NO_KEY = b"\0"  # stands for a function that no key has
_LOCAL_FLAGS, _CHARACTERS = 3, 6  # the positions of lflag and cc in what tcgetattr returns


class RankTerminal:
    """One end is the master of the rank's pseudo-terminal, the other the user's terminal, if it is there."""

    def __init__(self, loop: Loop, descriptor: int) -> None:
        self._loop = loop
        self._user: socket.socket | None = socket.socket(fileno=descriptor)
        self._user.setblocking(False)
        self._decoder = frames.Decoder()
        self._size = (24, 80)
        self._master = -1
        self._keys = bytearray()  # typed, and not yet taken by the pseudo-terminal
        self._waiting = bytearray()  # written, and not yet taken by the user's terminal
        self._stalled: Timer | None = None
        self._left_out: int | None = None  # bytes not shown to a user whose terminal takes nothing
        self._interrupted = float("-inf")  # when Ctrl-C was typed
        self._suspended = False
        self.on_drained: Callable[[], object] = lambda: None
        self._watch()
        self._receive()  # the size was sent ahead

    @property
    def full(self) -> bool:
        """Whether to stop reading from the rank for now."""
        return len(self._waiting) > BACKLOG and self._left_out is None

    def open(self) -> tuple[int, int]:
        """Make a pseudo-terminal for the next rank: a descriptor to read from, and the rank's own."""
        self.close()
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self._resize()
        self._send(frames.BEGUN)
        return os.dup(self._master), slave

    def close(self) -> None:
        """The rank has ended, or was never started."""
        if self._master >= 0:
            self._loop.forget(self._master)
            os.close(self._master)
            self._master = -1
            self._keys.clear()
            self._suspended = False
            self._send(frames.ENDED)

    def show(self, data: bytes) -> None:
        """Pass on what the rank wrote."""
        if self._left_out is not None:
            self._left_out += len(data)
        else:
            self._send(frames.OUTPUT, data)

    def is_read_by(self, pid: int) -> bool:
        """Whether a process waits for keys: it reads its standard input, or, as line editors do, has the
        terminal pass on each key.
        """
        if self._user is None or self._master < 0:
            return False
        try:
            if not termios.tcgetattr(self._master)[_LOCAL_FLAGS] & termios.ICANON:
                return True
            with open("/proc/%d/syscall" % pid, "rb") as file:
                number, first = file.read().split()[:2]
        except (OSError, ValueError, termios.error):
            return False
        return number in _READ and first == b"0x0"

    def drain(self, patience: float) -> None:
        """Pass on what is pending before the agent leaves; give up after `patience` seconds."""
        deadline = time.monotonic() + patience
        while self._user is not None and self._waiting and time.monotonic() < deadline:
            self._write()
            time.sleep(0.002)

    def was_interrupted(self, code: int, grace: float) -> bool:
        """Whether a rank that ended with this code, negative for a signal, was ended by Ctrl-C: by its signal
        or, where the rank handles that, soon after it.
        """
        ago = time.monotonic() - self._interrupted
        return ago < grace or (ago < float("inf") and code in (-signal.SIGINT, 128 + signal.SIGINT))

    # The user's side

    def _watch(self) -> None:
        if self._user is not None:
            self._loop.watch(self._user, READ | WRITE if self._waiting else READ, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        if events & READ:
            self._receive()

    def _receive(self) -> None:
        if self._user is None:
            return
        try:
            data = self._user.recv(64 * 1024)
            messages = self._decoder.feed(data)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, ValueError):
            data, messages = b"", []
        for kind, content in messages:
            if kind == frames.KEYS:
                self._type(content)
            elif kind == frames.SIZE:
                self._size = frames.decode_size(content)
                self._resize()
            elif kind == frames.CONTINUED:
                self.wake_rank()
        if not data:
            self._user_is_gone()

    def _send(self, kind: bytes, content: bytes = b"") -> None:
        if self._user is not None:
            self._waiting += frames.encode(kind, content)
            self._write()

    def _write(self) -> None:
        if self._user is None:
            return
        was_full, before = self.full, len(self._waiting)
        try:
            while self._waiting:
                del self._waiting[: self._user.send(self._waiting)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._user_is_gone()
            return
        if len(self._waiting) < before or not self.full or self._stalled is None:
            self._expect_progress()
        self._watch()
        if not self._waiting and self._left_out is not None:
            count, self._left_out = self._left_out, None
            text = "\r\n[echelon: %d bytes were not shown here; the log has them]\r\n" % count
            self._send(frames.OUTPUT, text.encode())
        if was_full and not self.full:
            self.on_drained()

    def _expect_progress(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
        self._stalled = self._loop.call_later(PATIENCE, self._give_up_showing) if self.full else None

    def _give_up_showing(self) -> None:
        """The user's terminal takes nothing; the run must not stand still for it."""
        if self.full:
            self._left_out = 0
            self.on_drained()

    def _user_is_gone(self) -> None:
        """Go on without: a rank that reads gets an end of file, as from a closed terminal."""
        if self._user is None:
            return
        self._loop.forget(self._user)
        self._user.close()
        self._user = None
        self._waiting.clear()
        self.wake_rank()
        if self._master >= 0:
            end = self._attributes()[_CHARACTERS][termios.VEOF]
            self._type(end + end)  # the first one may only end a line that was begun
        self.on_drained()

    # The rank's side

    def _resize(self) -> None:
        if self._master >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", *self._size, 0, 0))

    def _type(self, keys: bytes) -> None:
        if self._master < 0:
            return
        attributes = self._attributes()
        characters = attributes[_CHARACTERS]
        if attributes[_LOCAL_FLAGS] & termios.ISIG:
            if characters[termios.VINTR] in keys.replace(_NO_KEY, b""):
                self._interrupted = time.monotonic()
            before, suspend, after = keys.partition(characters[termios.VSUSP])
            if suspend not in (b"", _NO_KEY):
                self._type(before)
                self._suspend()
                self._type(after)
                return
        self._keys += keys[: _MOST_KEYS - len(self._keys)]
        self._pass_keys()

    def _pass_keys(self, _events: int = 0) -> None:
        try:
            while self._keys:
                del self._keys[: os.write(self._master, self._keys)]
        except BlockingIOError:
            pass
        except OSError:  # the rank has closed its terminal
            self._keys.clear()
        if self._keys:
            self._loop.watch(self._master, WRITE, self._pass_keys)
        else:
            self._loop.forget(self._master)

    def _attributes(self) -> list[Any]:
        try:
            return termios.tcgetattr(self._master)
        except termios.error:
            return [0, 0, 0, 0, 0, 0, [_NO_KEY] * 64]  # as a program sets it that reads every key itself

    def _suspend(self) -> None:
        self._suspended = self._signal(signal.SIGSTOP)
        if self._suspended:
            self._send(frames.SUSPENDED)

    def wake_rank(self) -> None:
        """Continue a rank that Ctrl-Z has stopped: a stopped process handles no signal."""
        if self._suspended:
            self._suspended = False
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> bool:
        """Send a signal to the processes in the foreground of the rank's terminal."""
        try:
            group = os.tcgetpgrp(self._master)
            if group > 0:
                os.killpg(group, number)
        except OSError:
            return False
        return group > 0


def take_terminal() -> None:
    """Make standard input the controlling terminal of a session just made; for the moment between fork and
    exec.
    """
    die_with_parent()
    # When a shell that leads the session ends, the kernel sends SIGHUP to its commands, which may be saving.
    # Nothing else would send it: the agent holds the terminal.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class PlainText:
    """What a rank writes to a terminal, as it would have written it to a file: lines end with a newline
    alone.
    """

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The next piece; a carriage return at its end is kept until it is known what follows."""
        data = self._held + data
        self._held = b"\r" if data.endswith(b"\r") else b""
        return (data[:-1] if self._held else data).replace(b"\r\n", b"\n")

    def without_sequences(self, data: bytes) -> bytes:
        """The same without colours: Python colours its tracebacks on a terminal."""
        return _SEQUENCE.sub(b"", data)

    def rest(self) -> bytes:
        """What was kept."""
        held, self._held = self._held, b""
        return held
