"""Where the Python of a rank is, for ranks that hang: asked by a signal, read from its standard error.

A rank's Python registers `faulthandler` for the signal when it starts (`launching/startup/`). The
signal is one of real time, which libraries and scripts do not use, and is sent only to a process that has a
handler for it. The stacks are part of the rank's output; the place in them is a few words for a report."""

from __future__ import annotations

import os
import re
import time

from echelon.agent.loop import Loop
from echelon.agent.ranks.processes import send

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.output.sink import Stream

PATIENCE = 2.0  # seconds for the answers
SIGNAL = 54  # as in launching/startup/sitecustomize.py
_LOOK = 0.05
_LONGEST = 200  # characters of a place
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_COLLECTIVES = re.compile(
    r"/torch/distributed/(?:distributed_c10d|c10d_logger|rendezvous|_functional_collectives)\.py$"
    r"|/horovod/|/mpi4py/|/tensorflow/.*(?:collective|cross_device)"
)
_DEBUGGERS = re.compile(r"/(?:pdb|bdb)\.py$|/(?:debugpy|pydevd\w*|_pydevd\w*|ipdb|pudb|remote_pdb)/")
_LIBRARY = re.compile(r"(?:^|/)(?:site-packages|dist-packages|lib/python[0-9.]+)/|^<")


def ask(loop: Loop, ranks: dict[int, tuple[int, Stream]], then: Callable[[dict[str, str]], object]) -> None:
    """Have the ranks (each with its process and its standard error) write their stacks; then, or when they
    do not answer, call `then()` with the places of those that did.
    """
    asked: dict[int, Stream] = {}
    for rank, (pid, stream) in ranks.items():
        if is_ready(pid):
            stream.tail = b""
            if send(pid, SIGNAL):
                asked[rank] = stream
    deadline = time.monotonic() + PATIENCE
    before: dict[int, bytes] = {}

    def look() -> None:
        written = {rank: stream.tail for rank, stream in asked.items()}
        answered = all(map(find_place, written.values())) and written == before
        if not answered and time.monotonic() < deadline:
            before.update(written)
            loop.call_later(_LOOK, look)
            return
        places = {str(rank): find_place(text) for rank, text in written.items()}
        then({rank: place for rank, place in places.items() if place})

    look()


def is_ready(pid: int, signal: int = SIGNAL) -> bool:
    """Whether a process has a handler for the signal; any other would be ended by it."""
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            caught = re.search(rb"^SigCgt:\s*([0-9a-f]+)$", file.read(), re.MULTILINE)
    except OSError:
        return False
    return caught is not None and bool(int(caught[1], 16) >> (signal - 1) & 1)


def find_place(text: bytes) -> str | None:
    """Where the main thread is, of stacks as faulthandler writes them: the innermost function, and the line
    of the user's own code.
    """
    return describe_place(find_frames(text))


def find_frames(text: bytes) -> list[tuple[str, str, str]]:
    """The main thread's functions, each with its file and line, the innermost first. The main thread is the
    last.
    """
    lines = text.decode("utf-8", "backslashreplace").splitlines()
    starts = [number for number, line in enumerate(lines) if _THREAD.match(line)]
    frames = []
    for line in lines[starts[-1] + 1 :] if starts else ():
        frame = _FRAME.match(line)
        if frame is None:
            break
        frames.append((frame["function"], frame["file"], frame["line"]))
    return frames


def is_collective(frames: list[tuple[str, str, str]]) -> bool:
    """Whether the innermost function belongs to a library of collectives; what a script's own line calls that
    is written in C, as with mpi4py, cannot be told.
    """
    return bool(frames) and _COLLECTIVES.search(frames[0][1]) is not None


def is_debugged(frames: list[tuple[str, str, str]]) -> bool:
    """Whether a debugger has stopped the process, or waits for the one who debugs."""
    return any(_DEBUGGERS.search(file) for _, file, _ in frames)


def describe_place(frames: list[tuple[str, str, str]]) -> str | None:
    """A stack in a few words, the innermost of its functions with their files and lines first."""
    if not frames:
        return None
    own = next((frame for frame in frames if not _LIBRARY.search(frame[1])), frames[0])
    place = "%s (%s:%s)" % (frames[0][0], os.path.basename(own[1]), own[2])
    return place[:_LONGEST]
