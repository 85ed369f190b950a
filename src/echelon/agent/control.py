"""Orders from the client: a socket in the worker's own folder, and the command that connects to it.

A client reaches it through `exec` in the pod: `python3 -S agent.pyz control SOCKET ORDER [JSON]`. The orders
are `stop` (with `reason`, `signal` and `grace`), `fetch` (a `client` fetches results for the next `seconds`,
and this worker stays; it answers `until` when), `release` (the `client` has them, and the workers may
leave) and, of the keeper, `stock` (a client has sent the safe checkpoints of an earlier start). One line of
JSON goes each way. Only the agent's user may open the socket; a process of that user could also signal the
agent."""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from echelon.agent.gang.wire import Connection
from echelon.agent.loop import READ, Loop

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

ORDERS = ("stop", "fetch", "release", "stock")
PATIENCE = 10.0  # seconds for an order and its answer
CALLERS = 16  # at a time; one more drops the oldest
LONGEST = 64 * 1024  # bytes of an order


class ControlSocket:
    """Listens for orders; `answer(order, details)` carries one out and returns the reply."""

    def __init__(
        self,
        loop: Loop,
        path: str,
        answer: Callable[[str, dict[str, object]], dict[str, object]],
    ) -> None:
        self._loop = loop
        self._path = path
        self._answer = answer
        self._callers: list[Connection] = []
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            os.unlink(path)  # left by an agent that was killed here
        except FileNotFoundError:
            pass
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            self._listener.bind(path)
        finally:
            os.umask(before)
        self._listener.listen(CALLERS)
        self._listener.setblocking(False)
        loop.watch(self._listener, READ, self._on_caller)

    def close(self) -> None:
        """Accept no more orders; pending answers are sent."""
        self._loop.forget(self._listener)
        self._listener.close()
        for caller in list(self._callers):
            caller.drain(0.5)
            self._dismiss(caller)
        try:
            os.unlink(self._path)
        except OSError:
            pass

    def _on_caller(self, _events: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if len(self._callers) >= CALLERS:
            self._dismiss(self._callers[0])
        caller = Connection(self._loop, sock, LONGEST)
        self._callers.append(caller)
        caller.on_message = self._on_order
        caller.on_closed = lambda closed, _reason: self._dismiss(closed)
        self._loop.call_later(PATIENCE, lambda: self._dismiss(caller))

    def _on_order(self, caller: Connection, message: dict[str, object]) -> None:
        order = message.get("order")
        if order in ORDERS:
            caller.send(self._answer(str(order), message))
        else:
            caller.send({"ok": False, "error": "there is no such order; there are: %s" % ", ".join(ORDERS)})

    def _dismiss(self, caller: Connection) -> None:
        if caller in self._callers:
            self._callers.remove(caller)
        caller.close()


def main(argv: list[str]) -> int:
    """Send an order: print the agent's answer and return 0, 1 if it refuses, or 2 without an answer."""
    if len(argv) not in (2, 3) or argv[1] not in ORDERS:
        return _complain("usage: control SOCKET %s [JSON]" % "|".join(ORDERS))
    try:
        details = json.loads(argv[2]) if len(argv) == 3 else {}
    except ValueError as error:
        return _complain("the details are not JSON: %s" % error)
    if not isinstance(details, dict):
        return _complain("the details are not a JSON object")
    details["order"] = argv[1]
    try:
        answer = json.loads(_ask(argv[0], json.dumps(details).encode() + b"\n"))
    except (OSError, ValueError) as error:
        return _complain("the agent at %s does not answer: %s" % (argv[0], error))
    print(json.dumps(answer))
    if answer.get("ok"):
        return 0
    print(answer.get("error"), file=sys.stderr)
    return 1


def _ask(path: str, question: bytes) -> bytes:
    deadline = time.monotonic() + PATIENCE
    received = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(path)
        sock.sendall(question)
        while not received.endswith(b"\n"):
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(1 << 20)
            if not data:
                raise OSError("it has hung up")
            received += data
    return received


def _complain(message: str) -> int:
    print(message, file=sys.stderr)
    return 2
