"""Commands that this worker runs for a launcher on worker 0, as a remote shell would: mpirun's daemons.

The leader asks for them over the gang's connection, which has proved itself; no other process can."""

from __future__ import annotations

import base64
import binascii
import os
import signal
from functools import partial

from echelon.agent.loop import WRITE, Loop
from echelon.agent.ranks.child import Child
from echelon.agent.ranks.launched import LaunchedRanks
from echelon.agent.ranks.leftovers import GRACE
from echelon.agent.ranks.processes import send
from echelon.agent.task import Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

WINDOW = 1024 * 1024  # bytes that a command may write before the launcher's side has taken any
_SHELL = "/bin/sh"
_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")


class Commands:
    """The commands of one worker, by the number that the leader gave each."""

    def __init__(self, loop: Loop, task: Task, ranks: LaunchedRanks) -> None:
        self._loop = loop
        self._task = task
        self._ranks = ranks
        self._running: dict[int, _Command] = {}
        self.send: Callable[[dict[str, object]], object] = lambda _message: None  # to the leader

    def obey(self, message: dict[str, object]) -> None:
        """Carry out an order of the leader."""
        number, what = message.get("command"), message.get("what")
        if type(number) is not int:
            return
        if what == "run":
            self._run(number, str(message.get("line")))
            return
        command = self._running.get(number)
        if command is None:
            return
        if what == "input":
            command.feed(_decoded(message.get("data")))
        elif what == "signal" and message.get("signal") in _SIGNALS:
            command.signal(getattr(signal, str(message["signal"])))
        elif what == "taken" and type(message.get("bytes")) is int:
            command.taken(int(message["bytes"]))  # type: ignore[call-overload]
        elif what == "gone":
            command.abandon()

    def _run(self, number: int, line: str) -> None:
        env = self._ranks.environment_of(None)
        if env is None:
            self._tell(number, "end", code=255, error="it is not running")
            return
        try:
            command = _Command(self._loop, self._task, self._ranks, line, env)
        except OSError as error:
            self._tell(number, "end", code=255, error="cannot start %s: %s" % (_SHELL, error.strerror))
            return
        self._running[number] = command
        self._ranks.commands.add(command.child.pid)
        command.on_data = lambda stream, data: self._tell(
            number, "data", stream=stream, data=base64.b64encode(data).decode()
        )
        command.on_end = partial(self._ended, number, command.child.pid)

    def _ended(self, number: int, pid: int, code: int) -> None:
        self._running.pop(number, None)
        self._tell(number, "end", code=code if code >= 0 else 128 - code)
        self._ranks.command_ended(pid)

    def _tell(self, number: int, what: str, **more: object) -> None:
        message: dict[str, object] = {"say": "command", "command": number, "what": what}
        message.update(more)
        self.send(message)


class _Command:
    """One command: a shell's, with the environment and in the folder of this worker's ranks."""

    def __init__(self, loop: Loop, task: Task, ranks: LaunchedRanks, line: str, env: dict[str, str]) -> None:
        self._loop = loop
        self._untaken = 0
        self._unwritten = b""
        self._no_more = self._over = False
        self.on_data: Callable[[int, bytes], object] = lambda *_: None
        self.on_end: Callable[[int], object] = lambda _code: None
        theirs, ours = os.pipe()
        try:
            self.child = Child(
                loop,
                ranks.children,
                [_SHELL, "-c", line],
                env,
                self._on_data,
                self._on_end,
                cwd=task.cwd,
                stdin=theirs,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        os.set_blocking(ours, False)
        self._input: int | None = ours

    def feed(self, data: bytes) -> None:
        """Write to its standard input; nothing means its end."""
        self._unwritten += data
        self._no_more = self._no_more or not data
        self._write(0)

    def signal(self, number: int) -> None:
        """Pass a signal on, to all of its processes."""
        if not self._over:  # else its number may be another's by now
            _signal_group(self.child.pid, number)

    def taken(self, count: int) -> None:
        """The other side has taken so many bytes."""
        self._untaken -= count
        if self._untaken <= WINDOW:
            self.child.resume()

    def abandon(self) -> None:
        """The launcher's side is gone: end it."""
        self.signal(signal.SIGTERM)
        self._loop.call_later(GRACE, lambda: self.signal(signal.SIGKILL))

    def _on_data(self, stream: int, data: bytes) -> None:
        self._untaken += len(data)
        if self._untaken > WINDOW:
            self.child.pause()
        self.on_data(stream, data)

    def _on_end(self, code: int) -> None:
        self._over = True
        self._close_input()
        self.on_end(code)

    def _write(self, _events: int) -> None:
        if self._input is None:
            return
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._input, self._unwritten) :]
        except BlockingIOError:
            self._loop.watch(self._input, WRITE, self._write)
            return
        except OSError:
            self._no_more = True
        self._loop.forget(self._input)
        if self._no_more:
            self._close_input()

    def _close_input(self) -> None:
        if self._input is not None:
            self._loop.forget(self._input)
            os.close(self._input)
            self._input = None


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        send(pid, number)


def _decoded(data: object) -> bytes:
    try:
        return base64.b64decode(str(data))
    except (binascii.Error, ValueError):
        return b""
