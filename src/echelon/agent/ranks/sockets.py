"""Where the agent's sockets for processes of its own machine are, and how these call the agent's program.
The launcher, the remote shell and the ranks' starter all find each other by this file.

A socket's name must be short (about 100 bytes), and a run's folder may be long: it is bound and connected
from inside its folder."""

from __future__ import annotations

import os
import sys

from echelon.agent.task import Place, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

LAUNCHER = "launcher.sock"  # the leader's: for the remote shell
_RANKS = "ranks-%d-%d.sock"  # each worker's, with its first rank and their number: for the ranks' starter
_LONGEST = 90  # bytes of a path that every system takes


def folder(task: Task) -> str:
    """The folder with the sockets; on one machine all workers of a run share it."""
    return os.path.join(task.reports, "remote")


def shell_program(task: Task) -> str:
    """The program that the launcher calls as it would call `ssh`."""
    return os.path.join(folder(task), "bin", "ssh")


def socket_of(place: Place) -> str:
    """The name of a worker's socket for ranks."""
    return _RANKS % (place.first_rank, place.procs)


def socket_for(rank: int, names: list[str]) -> str | None:
    """Which of the sockets in a folder a rank is to use: its own worker's or, where the launcher has put it
    elsewhere, any.
    """
    found = []
    for name in sorted(names):
        parts = name[: -len(".sock")].split("-") if name.endswith(".sock") else []
        if len(parts) == 3 and parts[0] == "ranks" and parts[1].isdigit() and parts[2].isdigit():
            first, count = int(parts[1]), int(parts[2])
            if first <= rank < first + count:
                return name
            found.append(name)
    return found[0] if found else None


def agent_words() -> list[str]:
    """How this machine's Python runs the agent's program; the same on every worker of a run."""
    program = os.path.abspath(sys.argv[0])
    return [sys.executable or "python3", "-I", "-S", program]


def start_rank_words(task: Task) -> list[str]:
    """What stands before the command of a rank, so that the agent takes it in."""
    return [*agent_words(), "rank", folder(task), task.secret_file]


def write_programs(task: Task) -> None:
    """Write the remote shell as a program without arguments, since some launchers take no others; and the
    `horovodrun` that a launcher of the user's finds.
    """
    path = shell_program(task)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    _write_program(path, [*agent_words(), "ssh", folder(task), task.secret_file])
    beside = os.path.join(os.path.dirname(path), "horovodrun")
    _write_program(beside, [*agent_words(), "horovodrun", folder(task)])


def _write_program(path: str, words: list[str]) -> None:
    text = '#!/bin/sh\nexec %s "$@"\n' % " ".join(map(_quote, words))
    temporary = "%s.%d.tmp" % (path, os.getpid())
    with open(temporary, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o700)
    os.replace(temporary, path)


def inside(folder: str, name: str, act: Callable[[str], object]) -> None:
    """Call `act()` with a path of a socket that is short enough."""
    path = os.path.join(folder, name)
    if len(os.fsencode(path)) <= _LONGEST:
        act(path)
        return
    back = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        act(name)
    finally:
        os.fchdir(back)
        os.close(back)


def _quote(word: str) -> str:
    return "'%s'" % word.replace("'", "'\\''")
