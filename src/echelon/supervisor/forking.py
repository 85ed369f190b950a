"""The process of which supervisors are forks: `python -m echelon.supervisor.forking`, started by an executor.

Its standard input is a socket: on each order, which comes with two locks, it forks a supervisor. It has one
thread, and imports once what supervisors and their agents need."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from echelon.agent import __main__ as _agent  # noqa: F401
from echelon.agent import several, streams
from echelon.agent.later import import_rest
from echelon.engines.local.folder import compaction  # noqa: F401 - what every run needs at its end
from echelon.engines.local.forks import SIZE
from echelon.engines.local.processes import MARK
from echelon.supervisor.__main__ import supervise

_LAST = 30.0  # seconds for what supervisors do when their runs have ended, such as to compress output
_ENVIRONMENT = 47  # where the addresses of the environment are in /proc/self/stat, from the state on


def main() -> None:
    """Fork supervisors until the executor has no more orders, and then wait for them."""
    several.import_agent()
    import_rest()
    orders = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is all that is needed
        os.dup2(nothing.fileno(), 0)
    while found := _next(orders):
        order, descriptors = found
        _reap()
        try:
            if os.fork() == 0:
                _become(orders, order, descriptors)
        except OSError:
            answer = b"0"
        else:
            answer = b"1"
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # the executor was killed: the next order is its end
            orders.sendall(answer)
    deadline = time.monotonic() + _LAST
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.02)


def _next(orders: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """An order and its descriptors; None when there are no more."""
    with contextlib.suppress(OSError):
        head, descriptors, _flags, _address = socket.recv_fds(orders, SIZE, 2)
        if len(head) == SIZE:
            size, content = int.from_bytes(head, "big"), b""
            while len(content) < size and (piece := orders.recv(size - len(content))):
                content += piece
            if len(content) == size:
                return json.loads(content), descriptors
    return None


def _reap() -> bool:
    """Take in what has ended; whether there is any child left."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _become(orders: socket.socket, order: dict[str, Any], descriptors: list[int]) -> None:
    """Be the supervisor, as if it had been started by itself; does not return."""
    try:
        os.setsid()
        orders.close()
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for target in (1, 2):
            os.dup2(log, target)
        os.close(log)
        os.environ.clear()
        os.environ.update(order["variables"])
        _wear(os.environ[MARK])
        supervise(Path(order["folder"]), *descriptors)
    except BaseException:  # noqa: BLE001 - of any kind: what the interpreter would do with it at its end
        sys.excepthook(*sys.exc_info())
    finally:
        streams.flush()
        os._exit(0)


def _wear(mark: str) -> None:
    """Write the run's mark into the environment that other processes see, which is what exec was given."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # the system has none, or it does not fit
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - as in what the supervisor imports
            fields = file.read().rpartition(b")")[2].split()
        first, end = map(int, fields[_ENVIRONMENT : _ENVIRONMENT + 2])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:  # noqa: PTH123
            memory.seek(first)
            given = memory.read(end - first)
            name = f"{MARK}=".encode()
            at = given.index(b"\0" + name) + 1 if not given.startswith(name) else 0
            room = given.index(b"\0", at) - at
            words = name + os.fsencode(mark)
            if len(words) <= room:
                memory.seek(first + at)
                memory.write(words.ljust(room, b"\0"))


if __name__ == "__main__":
    main()
