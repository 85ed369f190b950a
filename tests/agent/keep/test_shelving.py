"""How much a keeper takes of checkpoints that come at the same time."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import PATIENCE, wait_until

from echelon.agent.gang.wire import Connection
from echelon.agent.keep import exchange
from echelon.agent.keep.entries import Found
from echelon.agent.keep.room import MOST_FILES, Room
from echelon.agent.keep.shelving import Shelving
from echelon.agent.loop import Loop


def test_parts_that_come_at_the_same_time_get_no_more_room_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet would evict a keeper that has taken more, and all would be lost."""
    loop, done = Loop(), threading.Event()
    task: Any = SimpleNamespace(keep_folder=str(tmp_path), kept=["/out"], checkpoints="/out/ckpt")
    shelving = Shelving(loop, task, Room(10 << 20), lambda _message: None)
    monkeypatch.setattr(exchange, "take_entry", lambda *_: not done.wait(20.0))  # it does not come at once
    answers: list[dict[str, Any]] = []
    monkeypatch.setattr(exchange, "dismiss", lambda _connection, answer: answers.append(answer))
    monkeypatch.setattr(exchange, "admit", lambda connection, _answer: connection.detach())
    found = Found("step", "v", 1, 4 << 20, 1)
    sockets: list[socket.socket] = []
    connections: list[Connection] = []
    for worker in range(3):
        mine, theirs = socket.socketpair()
        sockets.append(theirs)
        connections.append(Connection(loop, mine))
        assert shelving.receive(worker, found.raw(), connections[-1], {})
    assert [each["refused"] for each in answers] == ["too-large"]
    many = Found("many", "v", MOST_FILES + 1, 0, 1)
    assert shelving.receive(3, many.raw(), connections[-1], {})
    assert answers[-1]["refused"] == "too-many"
    done.set()
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    wait_until(lambda: not shelving.busy, "the transfers to end")
    loop.call_later(0, loop.stop)
    for each in sockets:
        each.close()  # which wakes the loop, if it waits
    thread.join(PATIENCE)
    connections[-1].close()
    loop.close()
