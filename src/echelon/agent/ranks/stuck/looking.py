"""Looks where the ranks of a worker are, without a trace in their output: for a gang that has been silent.

A rank's Python writes its stacks to a file on a signal of their own, and with torch the state of its flight
recorder when a byte comes through its pipe (`launching/startup/`). The files have the process in their names:
it may be a child of the rank's, as below a shell, and torchrun has several. Beside that, the kernel tells
whether a process is stopped, and what it reads. A rank that does not answer is told as one that does not."""

from __future__ import annotations

import os
import time
import zlib

from echelon.agent.loop import Loop
from echelon.agent.ranks.processes import send, state_of
from echelon.agent.ranks.stuck import dumps, recorder, stacks

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

SIGNAL = 55  # as in launching/startup/sitecustomize.py, like the names of the files
PATIENCE = 3.0  # seconds for the answers
_LOOK = 0.05
_LONGEST = 64 << 20  # bytes of an answer
_STACKS_FD = 1000  # of a rank's Python, as there
# The numbers of system calls that take a descriptor and wait for what is behind it.
_CALLS = {
    "x86_64": {0: "reading", 17: "reading", 19: "reading", 1: "writing", 18: "writing", 73: "locking"},
    "aarch64": {63: "reading", 67: "reading", 65: "reading", 64: "writing", 68: "writing", 32: "locking"},
}


def forget(start: str) -> None:
    """Remove the files of a rank that has ended."""
    for path in dumps.files(start):
        try:
            os.unlink(path)
        except OSError:
            pass


def pythons(start: str) -> dict[int, str]:
    """The processes of a rank that can be asked, its own or Pythons below it, the newest last, and where the
    files of each begin.
    """
    found = {}
    for path in dumps.files(start):
        pid = dumps.writer_of(path, start)[0]
        if path.endswith(".stacks") and _writes_to(pid, path):
            found[pid] = path[: -len(".stacks")]
    return dict(sorted(found.items()))


def _writes_to(pid: int, path: str) -> bool:
    """Whether the process is there that has opened this file, and no other with its number."""
    try:
        return os.path.samefile("/proc/%d/fd/%d" % (pid, _STACKS_FD), path)
    except OSError:
        return False


def look(
    loop: Loop,
    ranks: dict[int, tuple[int, str]],
    then: Callable[[dict[str, dict[str, Any]]], object],
    only_recorders: bool = False,
    read: Callable[[bytes], dict[str, Any] | None] = recorder.read,
) -> None:
    """Ask the ranks, each given with its process and where its files begin, and call `then()` with what is
    known of each: `place`, `trace` (a digest of the stack), `collective` (whether it waits in a library of
    them), `debugged` (whether it is in a debugger of Python's), `state` and `does` as the kernel tells them,
    and `recorder`, as `read` makes it of the answer, with the time that it was taken `at`. With
    `only_recorders` no signal is sent. A rank that has ended meanwhile is left out: what it has left tells
    more (`dumps.py`).
    """
    asked = {
        rank: [
            _Asked(each, begins, dumps.writer_of(begins, start)[1], not only_recorders, read)
            for each, begins in (pythons(start) or {pid: "%s.%d" % (start, pid)}).items()
        ]
        for rank, (pid, start) in ranks.items()
    }
    everyone = [each for some in asked.values() for each in some]
    deadline = time.monotonic() + PATIENCE

    def wait() -> None:
        answered = [each.has_answered() for each in everyone]  # of each: it reads what there is by now
        if time.monotonic() < deadline and not all(answered):
            loop.call_later(_LOOK, wait)
        else:
            found: dict[str, dict[str, Any]] = {}
            for rank, some in asked.items():
                found.update(_of_rank(rank, some))
            then(found)

    loop.call_later(_LOOK, wait)


def _of_rank(rank: int, asked: list[_Asked]) -> dict[str, dict[str, Any]]:
    """What is known of a rank by its processes: those that torchrun has started are ranks themselves; else
    the one that is in a process group is the rank, or the newest.
    """
    answers = [(each, each.answer()) for each in asked]
    living = [
        (each, found) for each, found in answers if found["state"] not in ("", "Z") or found.get("recorder")
    ]
    told = [(each, found) for each, found in living if (found.get("recorder") or {}).get("groups")]
    ranks = {str(found["recorder"]["rank"]): found for each, found in told if each.is_one_itself}
    return ranks or {str(rank): found for _, found in (told or living)[-1:]}


class _Asked:
    """One process of a rank that was asked, and what it has answered so far."""

    def __init__(
        self,
        pid: int,
        start: str,
        is_one_itself: bool,
        stack: bool,
        read: Callable[[bytes], dict[str, Any] | None],
    ) -> None:
        self.is_one_itself = is_one_itself
        self._read = read
        self._pid = pid
        self._start = start
        self._stopped = state_of(pid) in ("T", "t")
        self._written = b""
        self._whole = False
        self._stack = stack and not self._stopped and stacks.is_ready(pid, SIGNAL)
        if self._stack:
            self._empty()
            self._stack = send(pid, SIGNAL)
        self._recorder = not self._stopped and self._ask_recorder()

    def has_answered(self) -> bool:
        if self._stack and not self._whole:
            written = _read(self._start + ".stacks")
            self._whole = bool(written) and written == self._written and bool(stacks.find_frames(written))
            self._written = written
        return (not self._stack or self._whole) and (
            not self._recorder or os.path.exists(self._start + ".answer")
        )

    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = {"state": state_of(self._pid)}
        frames = stacks.find_frames(self._written) if self._stack else []
        place = stacks.describe_place(frames)
        if place is not None:
            found.update(place=place, collective=stacks.is_collective(frames))
            found["trace"] = zlib.crc32(repr(frames).encode())
            if stacks.is_debugged(frames):
                found["debugged"] = True
        if self._stack:
            self._empty()
        does = what_it_does(self._pid)
        if does:
            found["does"] = does
        if self._recorder:
            # None: it was asked, and did not answer.
            found["recorder"] = self._read(_read(self._start + ".answer"))
            found["at"] = round(time.time(), 3)  # by the clock of the times that it tells
        return found

    def _ask_recorder(self) -> bool:
        """Whether there is a thread that answers."""
        try:
            os.unlink(self._start + ".answer")
        except OSError:
            pass
        try:
            pipe = os.open(self._start + ".ask", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return os.write(pipe, b"?") == 1
        except OSError:  # it is full of questions: none of them was answered
            return True
        finally:
            os.close(pipe)

    def _empty(self) -> None:
        try:
            os.truncate(self._start + ".stacks", 0)
        except OSError:
            pass


def what_it_does(pid: int) -> str:
    """The call that a process waits in, if that concerns a file or a pipe: `reading /data/part-17`."""
    try:
        with open("/proc/%d/syscall" % pid, "rb") as file:
            number, first = file.read().decode().split()[:2]
        verb = _CALLS.get(os.uname().machine, {}).get(int(number))
        name = os.readlink("/proc/%d/fd/%d" % (pid, int(first, 16))) if verb else ""
    except (OSError, ValueError):
        return ""
    return "%s %s" % (verb, name) if name.startswith(("/", "pipe:")) else ""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST)
    except OSError:
        return b""
