"""Watches and logs over real connections: cut, silent, and ended by another thread."""

from __future__ import annotations

import json
import threading

import pytest
from testbed.patience import FACTOR
from tests.conftest import PATIENCE, wait_until
from tests.engines.kubernetes.stand_in import BUSY, StandIn, cuts, streams, waits

from echelon.engines.kubernetes.client.api import Api, Gone
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.pods import Pod
from echelon.errors import Unreachable


def line(kind: str, version: str) -> bytes:
    about = {"name": "p", "resourceVersion": version}
    return json.dumps({"type": kind, "object": {"metadata": about}}).encode() + b"\n"


def test_a_watch_tells_what_happens(api: Api, stand_in: StandIn) -> None:
    text = line("ADDED", "1") + line("BOOKMARK", "2")
    stand_in.answer_with(streams([text[:10], text[10:90], text[90:]]))
    with api.watch("Pod", dict, version="0", timeout=10) as watch:
        seen = [(kind, version, subject is not None) for kind, version, subject in watch]
    assert seen == [("ADDED", "1", True), ("BOOKMARK", "2", False)]
    assert "watch=true" in stand_in.paths()[0]
    assert "timeoutSeconds=10" in stand_in.paths()[0]


@pytest.mark.parametrize("odd", [{"phase": 7}, [], {"containerStatuses": [{"state": {}}]}])
def test_a_watch_passes_over_an_object_that_is_damaged(api: Api, stand_in: StandIn, odd: object) -> None:
    damaged = {"metadata": {"name": "q", "resourceVersion": "2"}, "status": odd}
    told = json.dumps({"type": "ADDED", "object": damaged}).encode() + b"\n"
    stand_in.answer_with(streams([line("ADDED", "1") + told + line("ADDED", "3")]))
    with api.watch("Pod", Pod, version="0", timeout=10) as watch:
        seen = [(version, pod.metadata.name if pod is not None else None) for _, version, pod in watch]
    assert seen == [("1", "p"), ("2", None), ("3", "p")]


@pytest.mark.parametrize("answer", [b"<html>", b'{"type": "ADDED"}', b'{"type": 7, "object": {}}'])
def test_a_watch_that_no_api_server_answers_says_so(api: Api, stand_in: StandIn, answer: bytes) -> None:
    stand_in.answer_with(streams([line("ADDED", "1"), answer + b"\n"]))
    watch = api.watch("Pod", Pod, version="0", timeout=10)
    assert next(watch)[0] == "ADDED"
    with pytest.raises(Unreachable, match="does not answer as an API server does"):
        next(watch)


def test_a_watch_from_too_old_a_version(api: Api, stand_in: StandIn) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    stand_in.answer_with(streams([json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"]))
    with pytest.raises(Gone, match="too old"):
        list(api.watch("Pod", dict, version="0", timeout=10))


def test_a_watch_that_is_cut_says_so(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(streams([line("ADDED", "1")], then=cuts))
    watch = api.watch("Pod", dict, version="0", timeout=10)
    assert next(watch)[0] == "ADDED"
    with pytest.raises(Unreachable):
        next(watch)
    assert list(watch) == []


def test_a_watch_on_a_dead_connection_ends_at_its_time(
    api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelon.engines.kubernetes.client.api.GRACE", 1.0 * FACTOR)
    over = threading.Event()
    stand_in.answer_with(streams([line("ADDED", "1")], then=waits(over)))
    assert len(list(api.watch("Pod", dict, version="0", timeout=0.2))) == 1
    over.set()


@pytest.mark.parametrize("begun", [True, False])
def test_another_thread_can_end_a_stream(api: Api, stand_in: StandIn, begun: bool) -> None:
    over = threading.Event()
    stand_in.answer_with(streams([b"one\n"], then=waits(over)) if begun else waits(over))
    got: list[bytes] = []
    logs = api.logs("p", container="c", follow=True)
    thread = threading.Thread(target=lambda: got.extend(logs))
    thread.start()
    wait_until(lambda: got if begun else stand_in.seen, "the stream to begin")
    logs.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert got == ([b"one\n"] if begun else [])
    assert list(logs) == []
    over.set()


def test_a_stream_that_is_closed_before_it_began_sends_nothing(api: Api, stand_in: StandIn) -> None:
    api.logs("p", container="c").close()
    assert stand_in.seen == []


def test_a_stream_that_waits_for_the_server_can_be_ended(access: Access, stand_in: StandIn) -> None:
    stand_in.answer_with(BUSY)
    logs = Api(access, patience=600).logs("p", container="c", follow=True)
    thread = threading.Thread(target=lambda: list(logs))
    thread.start()
    wait_until(lambda: stand_in.seen, "the first request")
    logs.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_logs_are_bytes_as_they_come(api: Api, stand_in: StandIn) -> None:
    pieces = [b"\xff\x00half a li", b"ne\r\n", bytes(range(256)) * 300]
    stand_in.answer_with(streams(pieces))
    logs = api.logs("p", container="c", since="2026-01-01T00:00:00Z", tail=5)
    assert b"".join(logs) == b"".join(pieces)
    assert "container=c&sinceTime=2026-01-01T00%3A00%3A00Z&tailLines=5" in stand_in.paths()[0]
