"""Orders from outside: a socket in the worker's own folder, and the command that speaks to it.

A client reaches it through `exec` in the pod: `python3 agent.pyz control SOCKET WORD [JSON]`. The words are
`stop` (with `reason` and `now`), `release` (the results were fetched, nobody needs the worker any more) and
`state`. One line of JSON goes each way. The socket is open to its user alone; who can run something as that
user could also signal the agent."""

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

WORDS = ("stop", "release", "state")
PATIENCE = 10.0  # seconds for a question and its answer
CALLERS = 16  # at a time; when one more comes, the one who came first goes
LONGEST = 64 * 1024  # bytes of a question


class Door:
    """Listens for orders: `answer(word, details)` says what to reply."""

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
            os.unlink(path)  # an agent that was killed here before has left its own
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
        """Take no more orders; answers that wait are sent."""
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
        caller.on_message = self._on_word
        caller.on_closed = lambda closed, _reason: self._dismiss(closed)
        self._loop.call_later(PATIENCE, lambda: self._dismiss(caller))

    def _on_word(self, caller: Connection, message: dict[str, object]) -> None:
        word = message.get("word")
        if word in WORDS:
            caller.send(self._answer(str(word), message))
        else:
            caller.send({"ok": False, "error": "there is no such word; there are: %s" % ", ".join(WORDS)})

    def _dismiss(self, caller: Connection) -> None:
        if caller in self._callers:
            self._callers.remove(caller)
        caller.close()


def main(words: list[str]) -> int:
    """Speak to an agent: print its answer and return 0, or 1 if it says no, or 2 if nobody answers."""
    if len(words) not in (2, 3) or words[1] not in WORDS:
        return _complain("usage: control SOCKET %s [JSON]" % "|".join(WORDS))
    try:
        details = json.loads(words[2]) if len(words) == 3 else {}
    except ValueError as error:
        return _complain("the details are no JSON: %s" % error)
    if not isinstance(details, dict):
        return _complain("the details are no JSON object")
    details["word"] = words[1]
    try:
        answer = json.loads(_ask(words[0], json.dumps(details).encode() + b"\n"))
    except (OSError, ValueError) as error:
        return _complain("the agent at %s does not answer: %s" % (words[0], error))
    print(json.dumps(answer))
    if answer.get("ok"):
        return 0
    print(answer.get("error"), file=sys.stderr)
    return 1


def _ask(path: str, question: bytes) -> bytes:
    deadline = time.monotonic() + PATIENCE
    heard = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(path)
        sock.sendall(question)
        while not heard.endswith(b"\n"):
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(1 << 20)
            if not data:
                raise OSError("it has hung up")
            heard += data
    return heard


def _complain(words: str) -> int:
    print(words, file=sys.stderr)
    return 2
