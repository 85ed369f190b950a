"""How Kubernetes packs the streams of a command into WebSocket messages: the first byte is the channel.

Bytes in, pieces out, and the other way round; no I/O."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from typing import Any

from echelon.values import frozen

INPUT, OUTPUT, ERRORS, STATUS, SIZE, END = 0, 1, 2, 3, 4, 255
# `v5` can close a single stream; servers before 1.30 support `v4` only.
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
# Every WebSocket server hashes this into its response, which proves that it is one (RFC 6455).
RFC_6455 = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@frozen
class Piece:
    """A part of a message on one channel; `last` if the message is complete with it."""

    channel: int
    data: bytes
    last: bool


@frozen
class Ping:
    """The server checks that the client is alive."""

    data: bytes


class Closed:
    """The server closes the connection."""


def new_key() -> str:
    """A key for one handshake."""
    return base64.b64encode(os.urandom(16)).decode()


def handshake(key: str) -> list[tuple[str, str]]:
    """The headers that ask for a WebSocket with Kubernetes' channels."""
    return [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Protocol", f"{V5}, {V4}"),
    ]


def is_answer_to(key: str, answer: Mapping[str, str]) -> bool:
    """Whether these response headers are those of a WebSocket server that supports channels."""
    import hashlib

    digest = hashlib.sha1(key.encode() + RFC_6455, usedforsecurity=False).digest()
    accepted = answer.get("sec-websocket-accept") == base64.b64encode(digest).decode()
    return accepted and answer.get("sec-websocket-protocol") in (V5, V4)


class Packing:
    """One connection's messages, both ways."""

    def __init__(self) -> None:
        from wsproto import ConnectionType
        from wsproto.connection import Connection

        self._connection = Connection(ConnectionType.CLIENT)
        self._channel: int | None = None

    def pack(self, channel: int, data: bytes) -> bytes:
        """A message on a channel."""
        from wsproto.events import BytesMessage

        return self._connection.send(BytesMessage(data=bytes((channel,)) + data))

    def ping(self) -> bytes:
        """A check that the server is alive."""
        from wsproto import events

        return self._connection.send(events.Ping(payload=b""))

    def pong(self, data: bytes) -> bytes:
        """The response to a ping."""
        from wsproto import events

        return self._connection.send(events.Pong(payload=data))

    def close_message(self) -> bytes:
        """The close message; empty if it has been sent, or the connection is over."""
        from wsproto.connection import ConnectionState
        from wsproto.events import CloseConnection

        if self._connection.state not in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            return b""
        return self._connection.send(CloseConnection(code=1000))

    def unpack(self, data: bytes) -> Iterator[Piece | Ping | Closed]:
        """The pieces and control messages in `data`; incomplete ones are kept for the next call."""
        from wsproto import events

        self._connection.receive_data(data)
        for event in self._connection.events():
            if isinstance(event, events.BytesMessage):
                yield from self._piece(bytes(event.data), event.message_finished)
            elif isinstance(event, events.Ping):
                yield Ping(data=bytes(event.payload))
            elif isinstance(event, events.CloseConnection):
                yield Closed()
                return

    def _piece(self, data: bytes, last: bool) -> Iterator[Piece]:
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if self._channel is not None and (data or last):
            yield Piece(channel=self._channel, data=data, last=last)
        if last:
            self._channel = None


def exit_code_of(status: Mapping[str, Any]) -> int | None:
    """The exit code in the status message of a command; None if the command did not run to an end."""
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            code = str(cause.get("message"))
            if code.isdecimal() and len(code) <= 3:
                return int(code)
    return None
