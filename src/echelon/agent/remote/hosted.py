"""Ranks of this machine that a launcher has started: their starter (`rank_program.py`) hands over their
output and reports their ends, and from then on they are ranks of this worker like any other."""

from __future__ import annotations

import array
import json
import os
import signal
import socket
from functools import partial

from echelon.agent.gang.wire import Connection
from echelon.agent.loop import READ, Loop
from echelon.agent.ranks import sockets
from echelon.agent.ranks.child import Output
from echelon.agent.ranks.launched import LaunchedRanks
from echelon.agent.ranks.launching import launch
from echelon.agent.remote.local_socket import LocalSocket
from echelon.agent.task import Place, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import IO, Callable

_LONGEST = 4096  # bytes of the first message
_DEVICES = "_VISIBLE_DEVICES"  # how variables end that choose a worker's GPUs


class HostedRanks:
    """Takes in the ranks of one worker."""

    def __init__(self, loop: Loop, task: Task, place: Place, ranks: LaunchedRanks) -> None:
        self._loop = loop
        self._place = place
        self._ranks = ranks
        self._waiting: list[Connection] = []  # starters of ranks that failed, until the gang knows
        ranks.on_stopping = self._let_go
        self._socket = LocalSocket(
            loop, sockets.folder(task), sockets.socket_of(place), "rank", task.secret(), self._on_caller
        )

    def close(self) -> None:
        """Take in no more."""
        self._let_go()
        self._socket.close()

    def _on_caller(self, caller: Connection) -> None:
        sock = caller.detach()
        sock.setblocking(False)
        self._loop.watch(sock, READ, partial(self._receive_first, sock))

    def _receive_first(self, sock: socket.socket, _events: int) -> None:
        """The first message comes with the descriptors from which the rank's output is read."""
        self._loop.forget(sock)
        descriptors: array.array[int] = array.array("i")
        try:
            data, extra, _, _ = sock.recvmsg(_LONGEST, socket.CMSG_SPACE(8 * descriptors.itemsize))
        except OSError:
            data, extra = b"", []
        for level, kind, payload in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
        rank = _rank_in(data)
        if rank is None or len(descriptors) != 2:
            for descriptor in descriptors:
                os.close(descriptor)
            sock.close()
            return
        _Hosted(self, Connection(self._loop, sock), rank, list(descriptors))

    def start(self, hosted: _Hosted) -> None:
        """Answer a starter: with the variables of its rank that differ between workers, or not to start."""
        env = self._ranks.environment_of(hosted.rank)
        if env is None:
            hosted.refuse()
            return
        names = {"ECHELON_WORKER", "ECHELON_RANK", launch.LOOKS, "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"}
        names.update(name for name in env if name.endswith(_DEVICES))
        changed = {name: env.get(name) for name in sorted(names)}
        hosted.connection.send({"say": "start", "env": changed, "python_path": launch.STARTUP})

    def take_in(self, hosted: _Hosted, make: Callable[..., Output]) -> bool:
        """The rank has started."""
        return self._ranks.host(hosted.rank, make)

    def ended(self, hosted: _Hosted, code: int) -> None:
        """The rank has ended; its starter may end, too, once the gang knows why."""
        if code and not self._ranks.stopping:
            self._waiting.append(hosted.connection)
        else:
            hosted.connection.send({"say": "go"})

    def _let_go(self) -> None:
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.send({"say": "go"})


class _Hosted:
    """One rank and the connection of its starter."""

    def __init__(self, among: HostedRanks, connection: Connection, rank: int, descriptors: list[int]) -> None:
        self._among = among
        self._descriptors = descriptors
        self._output: Output | None = None
        self.connection = connection
        self.rank = rank
        connection.trust()
        connection.on_message = self._on_message
        connection.on_closed = self._on_closed
        among.start(self)

    def refuse(self) -> None:
        """Have the starter end without starting the rank."""
        self.connection.send({"say": "refused"})
        self._close_descriptors()

    def _on_message(self, _connection: Connection, message: dict[str, object]) -> None:
        pid, code = message.get("pid"), message.get("code")
        if message.get("say") == "started" and type(pid) is int and self._descriptors:
            self._started(pid)
        elif message.get("say") == "ended" and type(code) is int and self._output is not None:
            self._output.end(code)
            self._among.ended(self, code)

    def _started(self, pid: int) -> None:
        pipes: list[IO[bytes]] = [
            os.fdopen(descriptor, "rb", buffering=0) for descriptor in self._descriptors
        ]
        self._descriptors = []

        def make(
            loop: Loop, on_data: Callable[[int, bytes], object], on_end: Callable[[int], object]
        ) -> Output:
            self._output = Output(loop, pipes, on_data, on_end)
            self._output.pid = pid
            return self._output

        if not self._among.take_in(self, make):
            for pipe in pipes:
                pipe.close()

    def _on_closed(self, _connection: Connection, _reason: str) -> None:
        """The starter is gone, killed by the launcher, and the kernel has killed the rank with it. A rank
        that is killed by anything else has a starter that reports it.
        """
        self._close_descriptors()
        if self._output is not None:
            self._output.cut_off = True
            self._output.end(-signal.SIGKILL)

    def _close_descriptors(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


def _rank_in(data: bytes) -> int | None:
    try:
        message = json.loads(data.decode())
        rank = message["rank"]
    except (ValueError, KeyError, TypeError):
        return None
    return rank if type(rank) is int and rank >= 0 else None
