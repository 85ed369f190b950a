"""Streams in WebSocket messages, against a server's side of the same protocol."""

from __future__ import annotations

import base64
import hashlib
import itertools

from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Message
from wsproto.events import Ping as WebSocketPing

from echelon.engines.kubernetes.client.channels import (
    V4,
    V5,
    Closed,
    Packing,
    Piece,
    Ping,
    exit_code_of,
    handshake,
    is_answer_to,
    new_key,
)

MESSAGES = st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=200_000)), max_size=6)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(marks)]


@given(MESSAGES, st.lists(st.integers(0, 1 << 30), max_size=20), st.integers(1, 70_000))
def test_what_arrives_is_what_was_sent(
    messages: list[tuple[int, bytes]], places: list[int], fragment: int
) -> None:
    server = Connection(ConnectionType.SERVER)
    wire = b""
    for channel, data in messages:
        whole = bytes((channel,)) + data
        parts = [whole[start : start + fragment] for start in range(0, len(whole), fragment)]
        for number, part in enumerate(parts):
            wire += server.send(BytesMessage(data=part, message_finished=number == len(parts) - 1))
    packing = Packing()
    got: list[tuple[int, bytes]] = []
    whole_before = True
    for piece in cut(wire, places):
        for event in packing.unpack(piece):
            assert isinstance(event, Piece)
            if whole_before:
                got.append((event.channel, b""))
            assert got[-1][0] == event.channel
            got[-1] = (event.channel, got[-1][1] + event.data)
            whole_before = event.last
    assert got == messages
    assert whole_before


@given(MESSAGES)
def test_what_is_sent_is_what_arrives(messages: list[tuple[int, bytes]]) -> None:
    packing, server = Packing(), Connection(ConnectionType.SERVER)
    for channel, data in messages:
        server.receive_data(packing.pack(channel, data))
    got, started = [], b""
    for event in server.events():
        assert isinstance(event, Message)
        started += bytes(event.data)
        if event.message_finished:
            got.append((started[0], started[1:]))
            started = b""
    assert got == messages


def test_questions_and_the_last_word() -> None:
    packing, server = Packing(), Connection(ConnectionType.SERVER)
    (ping,) = packing.unpack(server.send(WebSocketPing(payload=b"there?")))
    assert ping == Ping(data=b"there?")
    server.receive_data(packing.pong(b"there?") + packing.ping())
    assert [type(event).__name__ for event in server.events()] == ["Pong", "Ping"]
    (last,) = packing.unpack(server.send(CloseConnection(code=1000)))
    assert isinstance(last, Closed)
    assert packing.close_message()
    assert packing.close_message() == b""


def test_nonsense_is_an_end() -> None:
    assert any(isinstance(event, Closed) for event in Packing().unpack(b"\xff" * 100))


def test_the_handshake() -> None:
    key = new_key()
    asked = dict(handshake(key))
    assert asked["Sec-WebSocket-Protocol"] == f"{V5}, {V4}"
    digest = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    answer = {"sec-websocket-accept": base64.b64encode(digest).decode(), "sec-websocket-protocol": V5}
    assert is_answer_to(key, answer)
    assert not is_answer_to(new_key(), answer)
    assert not is_answer_to(key, answer | {"sec-websocket-protocol": "chat"})


def test_exit_codes() -> None:
    ended = {"reason": "NonZeroExitCode", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}
    assert exit_code_of({"status": "Success"}) == 0
    assert exit_code_of({"status": "Failure"} | ended) == 3
    assert exit_code_of({"status": "Failure", "message": "no such container"}) is None
    assert exit_code_of({"status": "Failure", "details": None}) is None
