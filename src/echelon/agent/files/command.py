"""`agent.pyz files ...`: files in and out of a pod, run by the client through `exec`.

    files list ROOT [PATH]               the tree, a line of JSON for each entry
    files send ROOT [PATH]               the sending end of a copy, on standard input and output
    files receive ROOT [--into]          the receiving end of a copy
    files hold SECONDS                   keep the pod until no copy has used it for so long

The first three end when the other end does, or when nothing was read or sent for a minute. Exit code 0 means
that all was transferred; a failure is the last line, for the client to read."""

from __future__ import annotations

import json
import os
import sys
import time

from echelon.agent.files.beside import copies_beside
from echelon.agent.files.receiver import Missing, Receiver
from echelon.agent.files.sender import Sender
from echelon.agent.files.tree import BadTree, entries_at, find
from echelon.agent.files.wire import (
    Broken,
    Garbled,
    Trouble,
    Wire,
    postpone_end,
    report_trouble,
    standard_wire,
)

TYPE_CHECKING = False  # as mypy reads it; `typing` is not needed at run time
if TYPE_CHECKING:
    from typing import Callable

BROKEN = 3  # exit code: the other end went away


def main(argv: list[str]) -> int:
    """Carry out the command; returns the exit code."""
    action, *rest = argv or [""]
    if action == "list" and rest:
        return _list(rest[0], *rest[1:2])
    if action == "send" and rest:
        path = rest[1] if len(rest) > 1 else "."
        return _serve(lambda wire: Sender(wire, rest[0], path), rest[0])
    if action == "receive" and rest:
        return _serve(lambda wire: Receiver(wire, rest[0], into="--into" in rest[1:]), rest[0])
    if action == "hold" and rest:
        return _hold(float(rest[0]))
    usage = "files: list ROOT [PATH] | send ROOT [PATH] | receive ROOT [--into] | hold SECONDS"
    print(usage, file=sys.stderr, flush=True)
    return 2


def _list(root: str, path: str = ".") -> int:
    postpone_end()
    try:
        place = find(root, path)
    except BadTree as error:
        print(json.dumps({"trouble": str(error)}))
        return 1
    if place is None:
        print(json.dumps({"trouble": "nothing is there"}))
        return 1
    count = 0
    for count, entry in enumerate(entries_at(place), start=1):  # noqa: B007 - counted
        print(json.dumps(entry.raw()))
        postpone_end()
    print(json.dumps({"listed": count}))
    sys.stdout.flush()
    return 0


def _serve(make: Callable[[Wire], Sender | Receiver], root: str) -> int:
    wire = standard_wire()
    end = make(wire)
    try:
        end.run()
    except Missing:
        return 0
    except (Broken, Trouble):
        return BROKEN
    except (BadTree, Garbled) as error:
        return _give_up(wire, type(error).__name__, root, str(error))
    except OSError as error:
        import errno

        path = os.path.join(root, getattr(end, "at", ""))
        return _give_up(wire, errno.errorcode.get(error.errno or 0, ""), path, error.strerror or str(error))
    return 0


def _give_up(wire: Wire, code: str, path: str, message: str) -> int:
    try:
        report_trouble(wire, code, path, message)
    except Broken:
        pass
    return 1


def _hold(seconds: float) -> int:
    """Keep the pod while it is used: a copy is a process beside this one, and it reads or writes. One that is
    blocked for good, as in a disk that does not answer, does not keep the pod.
    """
    import signal

    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # a container's first process ignores it otherwise
    used = time.monotonic()
    before: dict[str, bytes] = {}
    while time.monotonic() - used < seconds:
        now = {process: _moved(process) for process in copies_beside()}
        if any(before.get(process) != moved for process, moved in now.items()):
            used = time.monotonic()
        before = now
        time.sleep(min(2.0, seconds / 4))
    return 0


def _moved(process: str) -> bytes:
    """How much a process has read and written; something else every time where the kernel does not tell."""
    try:
        with open("/proc/%s/io" % process, "rb") as file:
            return file.read()
    except OSError:
        return os.urandom(16)
