"""Commands over a WebSocket whose other end misbehaves, or is old; others are in test_containers."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from tests.conftest import PATIENCE
from tests.engines.kubernetes.stand_in import Answer, Proxy, StandIn, cuts, refuses, says
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong

from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.engines.kubernetes.client.channels import V4, V5
from echelon.engines.kubernetes.client.execute import Exec
from echelon.engines.kubernetes.client.login.access import Access
from echelon.errors import Refused, Unavailable, Unreachable

DONE = {"kind": "Status", "status": "Success"}
FAILED = {"kind": "Status", "status": "Failure", "message": "no such program", "code": 500}


class Peer:
    """The server's side of one WebSocket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._protocol = Connection(ConnectionType.SERVER)

    def say(self, *events: Event) -> None:
        self._connection.sendall(b"".join(self._protocol.send(event) for event in events))

    def tell(self, channel: int, data: bytes) -> None:
        self.say(BytesMessage(data=bytes((channel,)) + data))

    def hear(self) -> list[Event]:
        """What the client says next; nothing when it is gone."""
        while data := self._connection.recv(65536):
            self._protocol.receive_data(data)
            if events := list(self._protocol.events()):
                return events
        return []


def upgrades(behave: Callable[[Peer], None], protocol: str = V5) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        key = handler.headers["Sec-WebSocket-Key"].encode()
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        handler.send_response(101)
        handler.send_header("Upgrade", "websocket")
        handler.send_header("Connection", "Upgrade")
        handler.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
        handler.send_header("Sec-WebSocket-Protocol", protocol)
        handler.end_headers()
        handler.close_connection = True
        behave(Peer(handler.connection))

    return answer


def ends(peer: Peer, status: object = DONE) -> None:
    peer.tell(3, json.dumps(status).encode())
    peer.say(CloseConnection(code=1000))
    peer.hear()


def run(access: Access, **more: Any) -> Exec:
    return Api(access, patience=0).exec("p", ["do", "it"], container="c", **more)


def output(running: Exec) -> list[tuple[int, bytes]]:
    pieces = []
    while (piece := running.read(timeout=PATIENCE)) is not None:
        pieces.append(piece)
    return pieces


def test_what_is_asked(access: Access, stand_in: StandIn) -> None:
    stand_in.answer_with(upgrades(ends))
    with run(access, stdin=True, tty=True) as running:
        assert output(running) == []
        assert running.exit_code == 0
    path = stand_in.seen[0].path
    assert path.startswith("/api/v1/namespaces/default/pods/p/exec?container=c&command=do&command=it")
    assert path.endswith("&stdin=true&stdout=true&tty=true")


def test_an_older_server_cannot_be_told_that_input_ends(access: Access, stand_in: StandIn) -> None:
    over = threading.Event()

    def behave(peer: Peer) -> None:
        for channel in (0, 1, 2, 3):
            peer.tell(channel, b"")  # as servers before 1.30 begin
        peer.tell(1, b"hello")
        over.wait(PATIENCE)
        ends(peer)

    stand_in.answer_with(upgrades(behave, V4))
    with run(access, stdin=True) as running:
        assert running.read(timeout=PATIENCE) == (1, b"hello")
        with pytest.raises(Unavailable, match="cannot tell a command that its input has ended"):
            running.close_stdin()
        over.set()
        assert output(running) == []
        assert running.exit_code == 0


def test_a_connection_that_is_cut_in_the_middle(access: Access, stand_in: StandIn) -> None:
    stand_in.answer_with(upgrades(lambda peer: peer.tell(1, b"half")))
    with run(access) as running:
        assert running.read(timeout=PATIENCE) == (1, b"half")
        with pytest.raises(Unreachable):
            running.read(timeout=PATIENCE)
        with pytest.raises(Unreachable):
            running.write(b"more")
    assert running.exit_code is None


def test_a_last_word_without_a_status(access: Access, stand_in: StandIn) -> None:
    stand_in.answer_with(upgrades(lambda peer: peer.say(CloseConnection(code=1011))))
    with run(access) as running, pytest.raises(Unreachable):
        running.read(timeout=PATIENCE)


def test_a_status_without_a_last_word(access: Access, stand_in: StandIn) -> None:
    stand_in.answer_with(upgrades(lambda peer: peer.tell(3, json.dumps(DONE).encode())))
    with run(access) as running:
        assert output(running) == []
        assert running.exit_code == 0


def test_a_command_that_could_not_be_started(access: Access, stand_in: StandIn) -> None:
    stand_in.answer_with(upgrades(lambda peer: ends(peer, FAILED)))
    with run(access) as running, pytest.raises(Refused, match="no such program"):
        running.read(timeout=PATIENCE)


def test_silence_is_noticed(access: Access, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.engines.kubernetes.client.execute.PING", 0.05)
    monkeypatch.setattr("echelon.engines.kubernetes.client.execute.SILENCE", 0.3)
    over = threading.Event()
    stand_in.answer_with(upgrades(lambda _peer: (over.wait(PATIENCE), None)[1]))
    with run(access) as running, pytest.raises(Unreachable, match="no answer in time"):
        running.read(timeout=PATIENCE)
    over.set()


def test_questions_are_asked_and_answered(
    access: Access, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelon.engines.kubernetes.client.execute.PING", 0.05)
    monkeypatch.setattr("echelon.engines.kubernetes.client.execute.SILENCE", 20.0)
    heard: list[type[Event]] = []

    def behave(peer: Peer) -> None:
        peer.say(Ping(payload=b"there?"))
        while not {Ping, Pong} <= set(heard):
            heard.extend(map(type, peer.hear()))
        ends(peer)

    stand_in.answer_with(upgrades(behave))
    with run(access) as running:
        assert output(running) == []
    assert {Ping, Pong} <= set(heard)


def test_through_a_proxy(access: Access, stand_in: StandIn) -> None:
    def behave(peer: Peer) -> None:
        (message,) = peer.hear()
        assert isinstance(message, BytesMessage)
        peer.tell(2, bytes(message.data[1:]))
        ends(peer)

    stand_in.answer_with(upgrades(behave))
    with Proxy() as proxy, run(replace(access, proxy=f"http://{proxy.address}"), stdin=True) as running:
        running.write(b"echo")
        assert output(running) == [(2, b"echo")]
        assert proxy.asked


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (says(200, {}), Unreachable, "does not open a WebSocket: it says 200"),
        (upgrades(lambda _peer: None, "chat"), Unreachable, "does not speak v5.channel.k8s.io"),
        (refuses(404, "NotFound", 'pods "p" not found'), NotThere, "not found"),
        (refuses(400, "BadRequest", "container c is not valid for pod p"), Refused, "not valid for pod"),
        (cuts, Unreachable, "cannot reach"),
    ],
)
def test_what_is_no_beginning(
    access: Access, stand_in: StandIn, answer: Answer, kind: type[Exception], words: str
) -> None:
    stand_in.answer_with(answer)
    with pytest.raises(kind) as caught:
        run(access)
    assert words in str(caught.value)
    assert len(stand_in.seen) == 1
