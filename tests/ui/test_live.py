"""The WebSocket on the real server: a page is told of a run, and of what it asks for."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conftest import PATIENCE
from tests.ui.client import Client
from wsproto import ConnectionType, WSConnection
from wsproto.events import Request, TextMessage

from echelon.engines.memory.engine import MemoryEngine
from echelon.ui import live, server
from echelon.ui.live import read_query
from echelon.ui.spool import LineQuery

Serve = Callable[..., Client]


class Page:
    """What a page's script does: one WebSocket, JSON both ways."""

    def __init__(self, client: Client, query: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", client.port), PATIENCE)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        headers = [(b"origin", client.origin.encode()), (b"cookie", client.cookie.encode())]
        asked = Request(host=client.host, target=f"/api/live?{query}", extra_headers=headers)
        self._socket.sendall(self._protocol.send(asked))

    def messages(self) -> Iterator[dict[str, Any]]:
        text = ""
        while received := self._socket.recv(65536):
            self._protocol.receive_data(received)
            for event in self._protocol.events():
                if isinstance(event, TextMessage):
                    text += event.data
                    if event.message_finished:
                        yield json.loads(text)
                        text = ""

    def ask(self, text: str) -> None:
        self._socket.sendall(self._protocol.send(TextMessage(text)))

    def close(self) -> None:
        self._socket.close()


def test_a_page_gets_the_runs_and_one_run_with_the_lines_that_it_asks_for(
    serve: Serve, trained: MemoryEngine
) -> None:
    client = serve(trained).enter()
    page = Page(client, "page=runs")
    first = next(page.messages())
    assert (first["kind"], [run["name"] for run in first["runs"]]) == ("runs", ["fm"])
    page.close()
    page = Page(client, "page=run&name=fm")
    found: dict[str, Any] = {}
    for message in page.messages():
        found[message["kind"]] = message
        if {"run", "lines", "metrics"} <= set(found) and found["lines"]["count"] == 14:
            break
    assert found["run"]["run"]["status"]["state"] == "succeeded"
    page.ask("no JSON")
    page.ask('{"rank": 1, "search": "needle"}')
    asked = next(each for each in page.messages() if each["kind"] == "lines" and each["lines"])
    assert (asked["end"] - asked["first"], asked["complete"]) == (1, True)
    assert [line[5] for line in asked["lines"]] == ["only rank 1: Needle"]
    page.ask('{"at": 3}')
    asked = next(each for each in page.messages() if each["kind"] == "lines" and each["at"] == 3)
    assert (asked["start"], len(asked["lines"]), asked["count"]) == (0, 14, 14)  # all that there are fit
    page.close()
    page = Page(client, "page=run&name=none")
    assert next(page.messages())["kind"] == "trouble"
    page.close()


def test_a_page_stays_connected_longer_than_a_request_may_take(
    serve: Serve, trained: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_PATIENCE", 0.3)
    monkeypatch.setattr(live, "_BEAT", 0.2)
    page = Page(serve(trained).enter(), "page=runs")
    beats = itertools.islice((each for each in page.messages() if each["kind"] == "beat"), 5)
    assert len(list(beats)) == 5
    page.close()


@pytest.mark.parametrize("text", ["", "[]", '{"rank": "x"}', '{"search": 3}', "\x00"])
def test_what_is_no_question_is_not_heard(text: str) -> None:
    assert read_query(text) is None
    assert read_query('{"rank": 2, "at": -7}') == LineQuery(rank=2, at=-7)
