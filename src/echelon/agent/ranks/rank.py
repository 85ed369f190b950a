"""One process that an agent reads from: a rank, or a launcher that starts the ranks."""

from __future__ import annotations

import errno
import os
from functools import partial

from echelon.agent.output.sink import RankLog, Sink, Stream
from echelon.agent.ranks.child import Output

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from echelon.agent.ranks.terminal import PlainText


class Rank:
    """One process, its two streams, and how it ended.

    A launcher has the number of its worker's first rank, under which its lines are shown; it is `apart` where
    the ranks that it starts are taken in, which have lines of their own."""

    def __init__(self, number: int, launcher: bool = False, apart: bool = False) -> None:
        self.number = number
        self.launcher = launcher
        self.apart = apart
        self.child: Output | None = None
        self.streams: list[Stream] = []  # standard output and standard error
        self.log: RankLog | None = None
        self.tail = b""  # the end of both streams, in the order they came
        self.plain: PlainText | None = None  # where it has a terminal
        self.error_file = ""
        self.code: int | None = None
        self.place: str | None = None  # where its Python was when a signal killed it
        self.printed = 0.0  # when it last wrote anything, as time.monotonic() counts
        self.looks = ""  # where the files begin by which it is looked at (`stuck/looking.py`)

    def connect(self, sink: Sink, log: RankLog, hold: bool, letters: str = "oe") -> None:
        """Have its output cut into lines and kept."""
        self.log = log
        whose = None if self.apart else self.number
        self.streams = [Stream(sink, log, whose, letter, hold) for letter in letters]

    def take_errors(self) -> bytes:
        """The end of its standard error, when it has ended; this and its last lines without colours."""
        errors = self.streams[-1].tail if self.streams else b""
        if self.plain is not None:
            errors, self.tail = self.plain.without_sequences(errors), self.plain.without_sequences(self.tail)
        return errors

    def close_streams(self) -> None:
        """Its output is over; closing it again does nothing."""
        for stream in self.streams:  # after both are read: what is left of a line stands at the very end
            stream.close()
        self.streams = []
        if self.log is not None:
            self.log.close()


def open_log(rank: Rank, folder: str, sink: Sink, generation: int) -> RankLog:
    """The rank's log file among the results."""
    name = "launcher" if rank.apart else "rank-%d" % rank.number
    log = RankLog(os.path.join(folder, "%s.log" % name))
    log.on_trouble = partial(sink.tell_missing, "the log of %s" % name.replace("-", " "))
    if log.trouble is not None:
        log.on_trouble(log.trouble)
    if generation:
        log.write(b"--- restart %d ---\n" % generation)
    return log


def describe_no_start(program: str, error: Exception, cwd: str) -> str:
    """Why a program was not started."""
    missing = isinstance(error, FileNotFoundError)
    reason = getattr(error, "strerror", None) or str(error)
    where = getattr(error, "filename", None)
    if missing and where not in (None, program):
        return "cannot start in %s: %s" % (where, reason)
    text = "cannot start %s: %s" % (program, reason)
    if missing and "/" in program and os.path.isfile(os.path.join(cwd, program)):
        return text + _describe_first_line(os.path.join(cwd, program))
    if missing and "/" not in program and os.path.exists(os.path.join(cwd, program)):
        text += " on the PATH; it is in the working folder: ./%s" % program
    elif missing and program == "mpirun":
        from echelon.agent.ranks.mpi_version import PACKAGES

        text += "; MPI is needed: %s" % PACKAGES
    return text


def _describe_first_line(script: str) -> str:
    """Of a script that is there, what is not: the program that its first line names. Windows' line end is
    part of that name.
    """
    try:
        with open(script, "rb") as file:
            first = file.readline(256)
    except OSError:
        return ""
    if not first.startswith(b"#!"):
        return ""  # a program itself, which names its loader
    windows = " and a carriage return; save it with Unix line ends"
    named = os.fsdecode(first[2:]).strip()
    return "; its first line names %s%s" % (named, windows if first.endswith(b"\r\n") else "")


def find_start_hint(program: str, error: Exception, cwd: str, in_pod: bool) -> str | None:
    """What helps to start a program that was not started, where `describe_no_start` does not say it."""
    path = os.path.join(cwd, program)
    if isinstance(error, FileNotFoundError):
        if "/" in program or program == "mpirun" or os.path.exists(path):
            return None
        if in_pod:
            return "the image has no %s on its PATH; --image chooses another image" % program
        return "%s is not on the PATH; activate the environment that has it, or give its path" % program
    if "/" not in program or not os.path.isfile(path):
        return None
    if isinstance(error, PermissionError):
        from shlex import quote

        word = quote(program)
        script = "`echelon run %s` runs it with Python; " % word if program.endswith(".py") else ""
        return "%schmod +x %s lets it be executed" % (script, word)
    if getattr(error, "errno", None) == errno.ENOEXEC:
        if _is_binary(path):
            from echelon.agent.ranks.advice import find_advice

            return find_advice("Exec format error", in_pod)
        return "its first line must name the program that runs it, as in #!/bin/sh"
    return None


def _is_binary(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False
