"""Simulated agents: members of a gang as plain sockets in one process, speaking the real protocol.

They do at once what they are told, since they have no ranks: what is left is the leader's own work, which
`gang.py` measures.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from echelon.agent.gang.wire import encode, fresh_nonce, prove, proven
from measure.rounds import PATIENCE

REDIAL = 0.1  # as the real agent: seconds before another try
HEARTBEAT = 1.0
AT_ONCE = 4000  # connections that wait for their welcome at a time: what the backlog of a listener holds


class Member:
    """One simulated agent, and the last word of the leader that it has heard."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.sock: socket.socket | None = None
        self.nonce = self.their_nonce = ""
        self.incoming = b""
        self.welcome = False
        self.last_started = -1
        self.prepared = -1
        self.stopped = -1
        self.finished = False


class Members:
    """All simulated agents of one gang, in one loop."""

    def __init__(
        self, address: tuple[str, int], secret: bytes, count: int, *, answer_after: float = 0.0
    ) -> None:
        self.members = [Member(worker) for worker in range(1, count + 1)]
        self.redials = 0
        self.started: Counter[int] = Counter()  # how many have started a generation, and stopped after it
        self.stopped: Counter[int] = Counter()
        self.finished = 0
        self._unwelcome = 0  # those that have dialled and were not welcomed yet
        self._address = address
        self._secret = secret
        self._selector = selectors.DefaultSelector()
        self._answer_after = answer_after  # seconds, as over a long way
        self._to_dial: deque[tuple[float, Member]] = deque()
        self._to_answer: deque[tuple[float, Member, str]] = deque()
        now = time.monotonic()
        self._beats = deque((now + HEARTBEAT * n / count, m) for n, m in enumerate(self.members))

    def dial_all(self) -> None:
        """Have everybody call the leader while `until` runs."""
        now = time.monotonic()
        self._to_dial.extend((now, member) for member in self.members)

    def dial(self, member: Member) -> None:
        """Call the leader; the answer comes while `until` runs."""
        member.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        member.sock.setblocking(False)
        member.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        member.incoming, member.welcome = b"", False
        member.sock.connect_ex(self._address)
        self._selector.register(member.sock, selectors.EVENT_READ, member)
        self._unwelcome += 1

    def hang_up(self, member: Member) -> None:
        """Leave without a word, as a machine that is lost."""
        if member.sock is not None:
            self._selector.unregister(member.sock)
            member.sock.close()
            member.sock = None
            if not member.welcome:
                self._unwelcome -= 1
            member.welcome = False

    def until(self, done: Callable[[], bool]) -> float:
        """Go on until `done()`, asked after every round; return the time it was."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError("the gang did not come to where it should")
            for key, _ in self._selector.select(0.01):
                self._read(key.data)
            self._keep_time()
        return time.monotonic()

    def rest(self, seconds: float) -> None:
        """Go on for some time, as a gang that trains."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end)

    def close(self) -> None:
        """Leave, all of them."""
        for member in self.members:
            self.hang_up(member)
        self._selector.close()

    def _keep_time(self) -> None:
        now = time.monotonic()
        while self._to_dial and self._to_dial[0][0] <= now and self._unwelcome < AT_ONCE:
            self.dial(self._to_dial.popleft()[1])
        while self._to_answer and self._to_answer[0][0] <= now:
            _, member, nonce = self._to_answer.popleft()
            if member.sock is not None and member.their_nonce == nonce:
                self._introduce(member)
        while self._beats and self._beats[0][0] <= now:
            at, member = self._beats.popleft()
            self._beats.append((at + HEARTBEAT, member))
            if member.welcome:
                self._send(member, {"say": "beat"})

    def _read(self, member: Member) -> None:
        assert member.sock is not None
        try:
            data = member.sock.recv(256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.hang_up(member)
            if not member.finished:
                self.redials += 1
                self._to_dial.append((time.monotonic() + REDIAL, member))
            return
        *lines, member.incoming = (member.incoming + data).split(b"\n")
        for line in lines:
            if member.sock is not None:
                self._obey(member, json.loads(line))

    def _obey(self, member: Member, message: dict[str, Any]) -> None:
        word = message["say"]
        if word == "who":
            member.nonce, member.their_nonce = fresh_nonce(), message["nonce"]
            if self._answer_after:
                due = time.monotonic() + self._answer_after
                self._to_answer.append((due, member, member.their_nonce))
            else:
                self._introduce(member)
        elif word == "welcome":
            expected = prove(self._secret, "leader", member.worker, member.nonce, member.their_nonce)
            assert proven(expected, message["proof"]), "the leader did not prove itself"
            member.welcome = True
            self._unwelcome -= 1
        elif word == "prepare":
            member.prepared = message["generation"]
            self._send(member, {"say": "ready", "generation": member.prepared, "ports": []})
        elif word == "start":
            member.last_started = message["generation"]
            self.started[member.last_started] += 1
        elif word == "stop":
            member.stopped = member.last_started
            self.stopped[member.stopped] += 1
            self._send(member, {"say": "stopped", "generation": member.prepared})
        elif word == "finish":
            member.finished = True
            self.finished += 1
            self.hang_up(member)

    def _introduce(self, member: Member) -> None:
        proof = prove(self._secret, "member", member.worker, member.their_nonce, member.nonce)
        introduction = {
            "say": "me",
            "worker": member.worker,
            "nonce": member.nonce,
            "proof": proof,
            "last_started": member.last_started,
        }
        self._send(member, introduction)

    def _send(self, member: Member, message: dict[str, object]) -> None:
        """Whole or not at all: what one member says fits into any socket's buffer."""
        assert member.sock is not None
        raw = encode(message)
        try:
            assert member.sock.send(raw) == len(raw)
        except OSError:
            return  # the leader has hung up, which the next read sees
