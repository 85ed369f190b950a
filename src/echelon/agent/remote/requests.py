"""The leader's side of the remote shell: processes of its own machine ask for commands on workers, and the
leader passes between them and the workers' agents (`commands.py`)."""

from __future__ import annotations

import re

from echelon.agent.gang.leader import Leader
from echelon.agent.gang.wire import Connection
from echelon.agent.loop import Loop
from echelon.agent.ranks import sockets
from echelon.agent.ranks.launching.roll import LOCAL_HOST, WORKER_HOST
from echelon.agent.remote.local_socket import LocalSocket
from echelon.agent.task import Task

_WORKER = re.compile(WORKER_HOST.replace("%d", r"(\d+)") + r"\Z")
_PASSED_ON = {"input": ("data",), "signal": ("signal",), "taken": ("bytes",)}


class Requests:
    """One number for each command that is asked for."""

    def __init__(self, loop: Loop, task: Task, leader: Leader) -> None:
        self._task = task
        self._leader = leader
        self._last = 0
        self._callers: dict[int, tuple[int, Connection]] = {}  # by number: the worker, and who asked
        leader.on_command = self._on_answer
        leader.on_gone = self._on_gone
        self._socket = LocalSocket(
            loop, sockets.folder(task), sockets.LAUNCHER, "shell", task.secret(), self._on_caller
        )

    def close(self) -> None:
        """Take no more requests."""
        self._socket.close()

    def _on_caller(self, caller: Connection) -> None:
        caller.on_message = self._on_request

    def _on_request(self, caller: Connection, message: dict[str, object]) -> None:
        worker = self._find_worker(str(message.get("host")))
        if message.get("say") != "run" or worker is None:
            caller.send({"say": "unknown"})
            return
        self._last += 1
        number = self._last
        self._callers[number] = worker, caller
        caller.on_message = lambda _caller, more: self._pass_on(number, worker, more)
        caller.on_closed = lambda _caller, _reason: self._caller_gone(number)
        caller.send({"say": "running"})
        self._order(worker, number, "run", line=message.get("line"))

    def _find_worker(self, host: str) -> int | None:
        """The worker that a host means: by the name in the hostfile, or by its address."""
        named = _WORKER.match(host)
        if named is not None:
            number = int(named[1])
            return number if number < len(self._task.places) else None
        if host == LOCAL_HOST:
            return 0
        known = sorted(self._leader.gang.addresses.items())
        return next((worker for worker, address in known if address == host), None)

    def _pass_on(self, number: int, worker: int, message: dict[str, object]) -> None:
        say = str(message.get("say"))
        if number in self._callers and say in _PASSED_ON:
            self._order(worker, number, say, **{name: message.get(name) for name in _PASSED_ON[say]})

    def _caller_gone(self, number: int) -> None:
        found = self._callers.pop(number, None)
        if found is not None:
            self._order(found[0], number, "gone")

    def _order(self, worker: int, number: int, what: str, **more: object) -> None:
        message: dict[str, object] = {"say": "command", "command": number, "what": what}
        message.update(more)
        self._leader.send(worker, message)

    def _on_answer(self, worker: int, message: dict[str, object]) -> None:
        number = message.get("command")
        found = self._callers.get(number) if type(number) is int else None
        if found is None or found[0] != worker:
            return
        what = message.get("what")
        if what == "data":
            found[1].send({"say": "data", "stream": message.get("stream"), "data": message.get("data")})
        elif what == "end":
            self._end(number, {"code": message.get("code"), "error": message.get("error")})  # type: ignore[arg-type]

    def _on_gone(self, worker: int) -> None:
        for number, (where, _) in list(self._callers.items()):
            if where == worker:
                self._end(number, {"code": 255, "error": "worker %d was lost" % worker})

    def _end(self, number: int, how: dict[str, object]) -> None:
        _, caller = self._callers.pop(number)
        caller.on_closed = lambda *_: None
        caller.send(dict(how, say="end"))
