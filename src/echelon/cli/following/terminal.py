"""The user's terminal as the terminal of a run's only rank: keys and sizes go there, its output comes back.

Made for `echelon run` in the foreground. The other end is a pseudo-terminal that the run's agent holds
(`agent/ranks/terminal.py`). While the rank lives the user's terminal is in raw mode, in which every key,
Ctrl-C too, is a byte for the rank; before and after, Ctrl-C is a signal to this command. The mode of before
is set again on every way out that a process can notice."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import shutil
import signal
import socket
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Any

from echelon.agent.ranks import frames

_PIECE = 64 * 1024
_LOOK = 0.3  # seconds between two looks whether a command in the background was brought back
_DEADLY = (signal.SIGHUP, signal.SIGQUIT)
_TOLD = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


def offer_terminal() -> Terminal | None:
    """The terminal of this process for a rank, if all three standard streams are one."""
    try:
        return Terminal() if all(os.isatty(descriptor) for descriptor in (0, 1, 2)) else None
    except OSError:
        return None


class Terminal:
    """Relays between the user's terminal and a rank's. `descriptor` is for the engine, which may take it."""

    def __init__(self) -> None:
        self._rank, theirs = socket.socketpair()
        with theirs:  # above the descriptors that a supervisor is given
            self.descriptor = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 10)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._decoder = frames.Decoder()
        self._mode: list[Any] | None = None  # the terminal's, while it is in raw mode
        self._lives = False  # there is a rank
        self._began = False
        self._open_line = False
        self.on_output: Callable[[str], object] = lambda _text: None
        self.interrupted = False  # Ctrl-C was typed
        self._tell_size()

    def was_taken(self) -> bool:
        """Whether the engine has given it to a run; to be asked once, after the submission."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        try:
            return bool(self._rank.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def relay(self) -> bool:
        """Relay until the run's supervisor has ended; False if no rank ever had a terminal."""
        with self._listening_to_signals():
            try:
                while self._step():
                    pass
            finally:
                self._give_back()
        return self._began

    def _step(self) -> bool:
        """Wait for something to happen and act on it; False at the end."""
        watched: list[int] = [self._rank.fileno(), self._wake_read]
        if self._mode is not None:
            watched.append(0)
        in_background = self._lives and self._mode is None
        ready, _, _ = select.select(watched, [], [], _LOOK if in_background else None)
        if in_background:
            self._take()
        if self._wake_read in ready:
            self._on_signals(os.read(self._wake_read, 256))
        if 0 in ready and self._mode is not None:
            self._pass_keys()
        return self._rank.fileno() not in ready or self._receive()

    def _receive(self) -> bool:
        try:
            data = self._rank.recv(_PIECE)
            messages = self._decoder.feed(data)
        except (ConnectionError, ValueError):
            return False
        for kind, content in messages:
            if kind == frames.OUTPUT:
                _write(content)
                self.on_output(content.decode("utf-8", "backslashreplace"))
                self._open_line = not content.endswith(b"\n")
            elif kind == frames.BEGUN:
                self._began = self._lives = True
                self._take()
                self._tell_size()  # to an agent that may have replaced another
            elif kind == frames.ENDED:
                self._lives = False
                self._give_back()
            elif kind == frames.SUSPENDED:
                self._stop_together()
        return bool(data)

    def _pass_keys(self) -> None:
        try:
            keys = os.read(0, _PIECE)
        except OSError:
            keys = b""
        if not keys:
            self._give_back()
            self._lives = False  # the terminal is gone; the rank's output may still be wanted
            return
        self.interrupted = self.interrupted or b"\x03" in keys
        self._send(frames.encode(frames.KEYS, keys))

    def _tell_size(self) -> None:
        size = shutil.get_terminal_size() if not sys.stdout.isatty() else os.get_terminal_size(1)
        self._send(frames.encode_size(size.lines, size.columns))

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the agent is gone; so will be the supervisor
            self._rank.sendall(message)

    # The terminal's mode

    def _take(self) -> None:
        """Set raw mode, unless another job has the terminal."""
        if self._mode is not None or not self._lives or not _in_foreground():
            return
        self._mode = termios.tcgetattr(0)
        tty.setraw(0, termios.TCSANOW)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(newline="\r\n")  # messages of our own, which raw mode takes literally

    def _give_back(self) -> None:
        """Set the mode of before."""
        if self._mode is None:
            return
        if self._open_line:
            self._open_line = False
            with contextlib.suppress(OSError):  # a terminal that is gone
                _write(b"\r\n")
        mode, self._mode = self._mode, None
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                with contextlib.suppress(OSError):
                    stream.reconfigure(newline=None)
        if _in_foreground():  # a shell that has taken the terminal has set its own mode
            with contextlib.suppress(termios.error):
                termios.tcsetattr(
                    0, termios.TCSANOW, mode
                )  # a terminal that takes no output must not hold us

    def _stop_together(self) -> None:
        """Ctrl-Z has stopped the rank: stop as well, for the shell to take over. When the shell continues
        this command, the rank is continued.
        """
        self._give_back()
        previous = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, previous)
        self._send(frames.encode(frames.CONTINUED))
        self._take()

    # Signals

    @contextlib.contextmanager
    def _listening_to_signals(self) -> Iterator[None]:
        def wake(number: int, _frame: object) -> None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, bytes([number]))

        def die(number: int, _frame: object) -> None:
            self._give_back()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        previous = {number: signal.signal(number, wake) for number in _TOLD}
        previous |= {number: signal.signal(number, die) for number in _DEADLY}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTSTP in numbers:  # not by a key: only this command stops, and the rank continues
            self._give_back()
            os.kill(os.getpid(), signal.SIGSTOP)
        if signal.SIGWINCH in numbers:
            self._tell_size()
        if signal.SIGCONT in numbers or signal.SIGTSTP in numbers:
            if not _in_foreground():
                self._mode = None
            self._take()
            self._tell_size()


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except BlockingIOError:  # another program has left the terminal in this mode
            select.select([], [1], [])
