"""The handshake against who does not know the secret: replayed and reflected proofs, a false leader."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE, wait_until

from echelon.agent.gang.join import LeaderConnection
from echelon.agent.gang.wire import HANDSHAKE_LIMIT, encode, fresh_nonce, prove
from echelon.agent.loop import Loop
from echelon.agent.task import Place, Task

SECRET = b"the run's own"


class Follower:
    """What a connection needs to know of its worker, and what it was ordered to do."""

    def __init__(self) -> None:
        self.send: Callable[..., object] = lambda *_: None
        self.last_started = -1
        self.leaving = False
        self.spared = 0
        self.missing: list[str] = []
        self.orders: list[dict[str, object]] = []

    def elapsed(self) -> None:
        return None

    def obey(self, message: dict[str, object]) -> None:
        self.orders.append(message)


class Member:
    """A real member that dials a leader of the test's, in a thread of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        (folder / "secret").write_bytes(SECRET)
        places = dict.fromkeys(("cwd", "output", "logs", "reports"), str(folder))
        groups = [{"role": "worker", "workers": 2, "procs": 1, "essential": True}]
        leader = {"host": "127.0.0.1", "port": port}
        task = Task(
            {
                "schema": 1,
                "run": "r",
                "groups": groups,
                "leader": leader,
                "secret": str(folder / "secret"),
                **places,
            }
        )
        self.follower = Follower()
        self._loop = Loop()
        place = Place(1, 1, 0, "worker", 1, 1, 1, True)
        self.connection = LeaderConnection(self._loop, task, place, self.follower)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._loop.run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.connection.closing = True
        self._loop.call_later(0.0, self._loop.stop)
        self._thread.join(PATIENCE)
        self.connection.close()  # it may have dialled again since the test hung up
        self._loop.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(PATIENCE)
        yield found


@pytest.fixture
def member(tmp_path: Path, listener: socket.socket) -> Iterator[Member]:
    made = Member(tmp_path, listener.getsockname()[1])
    yield made
    made.end()


def accept(listener: socket.socket) -> tuple[socket.socket, Any]:
    sock, _ = listener.accept()
    sock.settimeout(PATIENCE)
    return sock, sock.makefile("rb")


def test_a_leader_that_knows_the_secret_is_believed(member: Member, listener: socket.socket) -> None:
    sock, lines = accept(listener)
    with sock:
        nonce = fresh_nonce()
        sock.sendall(encode({"say": "who", "nonce": nonce}))
        me = json.loads(lines.readline())
        sock.sendall(encode({"say": "welcome", "proof": prove(SECRET, "leader", 1, me["nonce"], nonce)}))
        sock.sendall(encode({"say": "prepare", "much": "x" * 4 * HANDSHAKE_LIMIT}))
        wait_until(lambda: member.follower.orders, "the first order")


@pytest.mark.parametrize("trick", ["reflected", "same nonce", "side", "worker", "guess", "none", "replayed"])
def test_a_false_leader_is_not_obeyed(member: Member, listener: socket.socket, trick: str) -> None:
    """It gives a member's own proof back, its nonce too, or one that it heard before."""
    heard = ""
    if trick == "replayed":
        sock, lines = accept(listener)
        with sock:
            sock.sendall(encode({"say": "who", "nonce": "n"}))
            first = json.loads(lines.readline())
            heard = prove(SECRET, "leader", 1, first["nonce"], "n")
    sock, lines = accept(listener)
    with sock:
        nonce = "n" if trick == "replayed" else fresh_nonce()
        sock.sendall(encode({"say": "who", "nonce": nonce}))
        me = json.loads(lines.readline())
        if trick == "same nonce":  # asks again with the member's nonce as its own, and reflects that proof
            sock.sendall(encode({"say": "who", "nonce": me["nonce"]}))
            me = json.loads(lines.readline())
        proof: object = {
            "reflected": me["proof"],
            "same nonce": me["proof"],
            "side": prove(SECRET, "member", 1, me["nonce"], nonce),
            "worker": prove(SECRET, "leader", 0, me["nonce"], nonce),
            "guess": prove(b"guess", "leader", 1, me["nonce"], nonce),
            "none": None,
            "replayed": heard,
        }[trick]
        sock.sendall(encode({"say": "welcome", "proof": proof}))
        sock.sendall(encode({"say": "start"}))
        with contextlib.suppress(ConnectionResetError):  # it may hang up before it has read the last word
            assert lines.readline() == b"", "it hangs up, and says nothing more"
    assert not member.connection.connected
    assert not member.follower.orders
    accept(listener)[0].close()  # it goes on looking for its leader


def test_a_false_leader_cannot_fill_the_memory(member: Member, listener: socket.socket) -> None:
    sock, lines = accept(listener)
    with sock:
        sock.sendall(b"x" * (HANDSHAKE_LIMIT + 1))
        assert lines.readline() == b""
    assert not member.connection.connected
