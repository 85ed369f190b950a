"""This process's streams joined to a command in a pod: keys and bytes in, output and exit code back.

With a terminal, every key goes through as it is pressed, Ctrl-C too, and the window's size follows; without
one, standard input is passed on to its end, as with any pipe."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Protocol

_PIECE = 1 << 16


class Command(Protocol):
    """A command that runs somewhere else; `Exec` is one."""

    @property
    def exit_code(self) -> int | None:
        """How it ended, once it has."""
        ...

    def read(self, timeout: float | None = None) -> tuple[int, bytes] | None:
        """What it wrote, and where: 1 standard output, 2 standard error; None when it has ended."""
        ...

    def write(self, data: bytes) -> None:
        """Give it input."""
        ...

    def close_stdin(self) -> None:
        """Close its standard input."""
        ...

    def resize(self, width: int, height: int) -> None:
        """Send the size of its terminal."""
        ...


def has_terminal() -> bool:
    """Whether keys come from a terminal, and output goes to one."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def join(command: Command, *, tty: bool, stdin: bool) -> int | None:
    """Pass everything on in both directions until the command has ended; returns its exit code."""
    with _raw_terminal(command) if tty else contextlib.nullcontext():
        if stdin:
            threading.Thread(target=_pass_input, args=(command,), daemon=True).start()
        while (got := command.read()) is not None:
            stream, data = got
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(stream, rest) :]
    return command.exit_code


def _pass_input(command: Command) -> None:
    """Until there is no more input, or the command takes none: `read` then raises why."""
    with contextlib.suppress(Exception):
        while piece := os.read(0, _PIECE):
            command.write(piece)
        command.close_stdin()


@contextlib.contextmanager
def _raw_terminal(command: Command) -> Iterator[None]:
    """Let keys through as they are pressed, and send the window's size now and whenever it changes."""
    import termios
    import tty

    def send_size(*_: object) -> None:
        size = shutil.get_terminal_size()
        command.resize(size.columns, size.lines)

    before = termios.tcgetattr(0)
    handler = signal.signal(signal.SIGWINCH, send_size)
    try:
        tty.setraw(0)
        send_size()
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
