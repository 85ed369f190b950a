"""A program on a terminal of its own, as a person sits before it: what it shows, what is typed, Ctrl-C."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyte
from tests.conftest import PATIENCE

ECHELON = (sys.executable, "-m", "echelon.cli.main")


class Terminal:
    """A pseudo-terminal of 80 columns, or as many as are asked for, with one program in its foreground."""

    def __init__(
        self,
        *words: str,
        columns: int = 80,
        program: Sequence[str] = ECHELON,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        ours, theirs = pty.openpty()
        self._file = ours
        self.resize(24, columns)
        self.first_mode = self.mode()  # before the program may change it
        around = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        self.shown = ""
        self.screen = pyte.Screen(columns, 24)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._emulator = pyte.ByteStream(self.screen)
        self.process = subprocess.Popen(
            [*program, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one thread
            env={**around, "TERM": "xterm", **(environment or {})},
            cwd=cwd,
        )
        os.close(theirs)

    @property
    def lines(self) -> list[str]:
        """What stands on the screen now, as far as it was read."""
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def resize(self, rows: int, columns: int) -> None:
        """Make the window larger or smaller."""
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def mode(self) -> list[Any]:
        """How the terminal treats keys and output."""
        return termios.tcgetattr(self._file)

    def expect(self, pattern: str) -> str:
        """Read until the pattern has been shown; what came before it was read, too, is returned."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.shown):
            if not self._read(deadline):
                raise AssertionError(f"{pattern!r} was never shown, but:\n{self.shown}")
        return self.shown

    def expect_lines(self, *patterns: str) -> None:
        """Read until the screen's lines are these, neither more nor fewer. What was read last may end in the
        middle of a painting, so that the screen may lack a line that `expect` has seen.
        """
        deadline = time.monotonic() + PATIENCE
        while not all(map(re.search, patterns, self.lines)) or len(self.lines) != len(patterns):
            if not self._read(deadline):
                raise AssertionError(
                    f"the lines {patterns} never stood there, but:\n" + "\n".join(self.lines)
                )

    def type(self, text: str) -> None:
        """Press keys; \\x03 is Ctrl-C."""
        os.write(self._file, text.encode())

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """Take the terminal away: whoever sits before it hears SIGHUP. Taking it away again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._file], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing more was shown in {PATIENCE:g} s after:\n{self.shown}")
        try:
            data = os.read(self._file, 65536)
        except OSError:  # Linux says so when nobody has the other end open any more
            return False
        self._emulator.feed(data)
        self.shown = (self.shown + self._decoder.decode(data)).replace("\r\n", "\n")
        return bool(data)
