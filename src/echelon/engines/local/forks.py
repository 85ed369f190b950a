"""Supervisors as forks of one process, for an executor, which starts many: to start an interpreter, and to
import what a supervisor and its agents need, costs more than all else of a short run.

That process (`supervisor/forking.py`) is started with the first run, has one thread, and ends when no more
runs are to be started and its forks have ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from echelon.engines.local.processes import MARK

SIZE = 4  # bytes before an order, which say how long it is
_PATIENCE = 60.0  # seconds for an answer: the process may be stopped
_LONGEST_MARK = 4096  # bytes; a fork writes its own mark over that of the process it is forked from


class Forks:
    """The orders to that process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: socket.socket | None = None

    def start(
        self, folder: Path, log: Path, variables: Mapping[str, str], descriptors: tuple[int, int]
    ) -> None:
        """Start the supervisor of a run in a session of its own, with its lock and that of its results
        folder; what it writes goes to `log`. Raises OSError if that is not possible.
        """
        order = {"folder": str(folder), "log": str(log), "variables": dict(variables)}
        content = json.dumps(order).encode()
        with self._lock:
            answer = self._send(content, descriptors)
            if answer is None:  # the process was killed: another one takes its place
                answer = self._send(content, descriptors)
        if answer != b"1":
            code = errno.EAGAIN if answer == b"0" else errno.ECONNRESET  # the latter: it may have been forked
            raise OSError(code, os.strerror(code))

    def _send(self, content: bytes, descriptors: tuple[int, int]) -> bytes | None:
        """The answer to an order; None if it cannot be sent, "" if none came."""
        if self._orders is None:
            self._orders = _begin()
        try:
            socket.send_fds(self._orders, [len(content).to_bytes(SIZE, "big")], descriptors)
            self._orders.sendall(content)
        except OSError:
            self._forget()
            return None
        answer = b""
        with contextlib.suppress(OSError):
            answer = self._orders.recv(1)
        if not answer:
            self._forget()
        return answer

    def close(self) -> None:
        """No more runs are to be started."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._orders is not None:
            self._orders.close()
            self._orders = None


def _begin() -> socket.socket:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "echelon.supervisor.forking"]
    variables = {**os.environ, MARK: os.environ.get(MARK, "").ljust(_LONGEST_MARK)}
    ours.settimeout(_PATIENCE)
    with contextlib.ExitStack() as stack, theirs:
        stack.enter_context(ours)
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
        os.posix_spawn(sys.executable, command, variables, file_actions=actions, setsid=True)
        stack.pop_all()
    return ours


_current: Forks | None = None


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Inside of the context, runs that this process starts have such supervisors."""
    global _current  # noqa: PLW0603 - as the processes that it has started are this process's own
    _current = Forks()
    try:
        yield
    finally:
        _current.close()
        _current = None


def current() -> Forks | None:
    """Those of this process, if it starts many runs."""
    return _current
