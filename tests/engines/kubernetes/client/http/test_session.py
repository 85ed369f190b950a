"""Requests over real connections to a server that is busy or restarting, and threads that share them."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import pytest
from tests.conftest import PATIENCE
from tests.engines.kubernetes.clock import Clock
from tests.engines.kubernetes.stand_in import BUSY, POD, Certificates, StandIn, cuts, refuses, says, streams

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.http import session
from echelon.engines.kubernetes.client.login.access import Access
from echelon.errors import Unreachable


def test_what_is_asked(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, POD))
    assert api.get("Pod", "p") == POD
    seen = stand_in.seen[0]
    assert (seen.method, seen.path) == ("GET", "/api/v1/namespaces/team/pods/p")
    assert "authorization" not in seen.headers


@pytest.mark.parametrize("trouble", [cuts, BUSY, says(502, b"<html>bad gateway</html>"), says(500, b"")])
def test_a_question_is_asked_again(api: Api, stand_in: StandIn, trouble: object) -> None:
    stand_in.answer_with(trouble, trouble, says(200, POD))  # type: ignore[arg-type]
    assert api.get("Pod", "p") == POD
    assert len(stand_in.seen) == 3


def test_an_answer_cut_in_the_middle_is_asked_for_again(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(streams([b'{"kind": '], then=cuts), says(200, POD))
    assert api.get("Pod", "p") == POD


@pytest.mark.parametrize("trouble", [cuts, BUSY, says(504, b"")])
def test_what_would_be_made_twice_is_sent_once(api: Api, stand_in: StandIn, trouble: object) -> None:
    stand_in.answer_with(trouble, says(200, POD))  # type: ignore[arg-type]
    with pytest.raises(Unreachable):
        api.create(POD)
    assert len(stand_in.seen) == 1


def test_a_busy_server_is_asked_again_even_to_make_something(api: Api, stand_in: StandIn) -> None:
    busy = refuses(429, "TooManyRequests", "slow down")
    stand_in.answer_with(busy, says(429, b"", Retry_After="0"), says(201, POD))
    assert api.create(POD) == POD
    assert [seen.method for seen in stand_in.seen] == ["POST"] * 3


def test_two_that_count_against_one_quota(api: Api, stand_in: StandIn) -> None:
    conflict = refuses(409, "Conflict", "the object has been modified", details={"kind": "resourcequotas"})
    stand_in.answer_with(conflict, says(201, POD))
    assert api.create(POD) == POD


def test_a_server_that_asks_for_more_patience_than_there_is(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(429, b"", Retry_After="3600"))
    with pytest.raises(Unreachable, match="429"):
        api.get("Pod", "p")
    assert len(stand_in.seen) == 1


def test_patience_ends(access: Access, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "time", Clock())
    stand_in.answer_with(BUSY)
    with pytest.raises(Unreachable, match="cannot answer now: starting"):
        Api(access, patience=0.3).get("Pod", "p")
    assert len(stand_in.seen) > 1


def test_a_change_is_repeated(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(cuts, says(200, POD))
    api.patch("Pod", "p", {})
    assert len(stand_in.seen) == 2


def test_a_server_that_is_away_for_a_moment(
    access: Access, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        session, "STRANGERS_PATIENCE", PATIENCE
    )  # how long a moment is says the machine's load
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    away = replace(access, server=f"https://127.0.0.1:{port}")
    outcome: list[object] = []
    thread = threading.Thread(target=lambda: outcome.append(Api(away, patience=PATIENCE).create(POD)))
    thread.start()
    with StandIn(certificates, port=port) as server:
        server.answer_with(says(201, POD))
        thread.join(PATIENCE)
    assert outcome == [POD]


def test_many_threads_share_one_session(api: Api, stand_in: StandIn) -> None:
    together = threading.Barrier(30)

    def answer(handler: object) -> None:
        together.wait(PATIENCE)
        streams([b"x"])(handler)  # type: ignore[arg-type]

    stand_in.answer_with(answer)
    got: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: got.extend(api.logs("p", container="c", follow=True)))
        for _ in range(30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert got == [b"x"] * 30


def test_connections_are_used_again(api: Api, stand_in: StandIn) -> None:
    for _ in range(5):
        api.raw("/version")
    assert len({seen.port for seen in stand_in.seen}) == 1
    api.close()
    api.raw("/version")
    assert len({seen.port for seen in stand_in.seen}) == 2
