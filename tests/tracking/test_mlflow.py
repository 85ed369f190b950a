"""MLflow's variables, names and numbers; and servers that refuse, as a stand-in plays them.

What a real server takes is in `test_server.py`."""

from __future__ import annotations

import base64
import json
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.tracking.conftest import FACTS

from echelon.errors import InvalidJob
from echelon.model.output.metric import Metric
from echelon.model.status import Status
from echelon.tracking.mlflow import MLflow, name_of, sent_of, server_of, tags_of
from echelon.tracking.sink import Away, Numbering, Rejected


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("https://host/prefix/", "https://host/prefix"),
        ("http://ann:secret@host:80/", "http://host:80"),
        ("http://[::1]:5000", "http://[::1]:5000"),
    ],
)
def test_where_it_is(address: str, url: str) -> None:
    server = server_of({"MLFLOW_TRACKING_URI": address, "MLFLOW_TRACKING_TOKEN": "t0ken"})
    assert server.url == url
    assert "secret" not in repr(server)
    assert "t0ken" not in repr(server)


@pytest.mark.parametrize(
    "address", ["", "./mlruns", "sqlite:///mlflow.db", "databricks", "http://", "http://a:b:c"]
)
def test_what_is_no_server(address: str) -> None:
    with pytest.raises(InvalidJob, match="MLFLOW_TRACKING_URI is not"):
        server_of({"MLFLOW_TRACKING_URI": address})


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (Metric("loss", 1.0, 0.0, rank=0), "loss"),
        (Metric("val/loss", 1.0, 0.0, rank=3), "rank 3/val/loss"),
        (Metric("loss", 1.0, 0.0, rank=0, part="train"), "train/loss"),
        (Metric("loss", 1.0, 0.0, source="tb/run1"), "tb/run1/loss"),
        (Metric("loss", 1.0, 0.0, source="."), "tensorboard/loss"),
        (Metric("top@1 (é)", 1.0, 0.0, rank=0), "top_1 ___"),
        (Metric("/../a//b/.", 1.0, 0.0, rank=0), "a/b"),
        (Metric("..", 1.0, 0.0, rank=0), "_"),
        (Metric("x" * 300, 1.0, 0.0, rank=0), "x" * 250),
    ],
)
def test_names_that_every_server_takes(metric: Metric, name: str) -> None:
    assert name_of(metric) == name


def test_counts_as_tags_fit_and_come_back() -> None:
    sent = {str(rank): 10**9 + rank for rank in range(1000)} | {f"~{n:08x}": 10**6 for n in range(1000)}
    names = {f"echelon.sent.{n}" for n in range(5)} | {f"echelon.sent.x{n}" for n in range(16)}
    tags = tags_of(sent, names)
    assert max(map(len, tags.values())) < 5000
    assert sent_of(tags) == sent
    assert tags_of(sent, {"echelon.sent.1"}).keys() == {"echelon.sent.1"}
    assert sent_of({"echelon.sent.0": "not JSON", "echelon.sent.1": '["a"]', "other": '{"0": 1}'}) == {}


class StandIn:
    """A server that answers as told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: Callable[[str], tuple[int, object]] = lambda _: (200, {})
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path = self.path.partition("mlflow/")[2].partition("?")[0]
                stand_in.asked.append((path, json.loads(body or b"{}")))
                stand_in.headers.append(dict(self.headers))
                status, content = stand_in.answers(path)
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    found = StandIn()
    yield found
    found.close()


@pytest.fixture
def client(stand_in: StandIn) -> Iterator[Callable[..., MLflow]]:
    made: list[MLflow] = []

    def make(**variables: str) -> MLflow:
        made.append(MLflow(server_of({"MLFLOW_TRACKING_URI": stand_in.url, **variables})))
        return made[-1]

    yield make
    for each in made:
        each.close()


KNOWN = {"run": {"info": {"run_id": "r1", "status": "RUNNING"}, "data": {}}}


def usual(path: str) -> tuple[int, object]:
    return 200, {"experiments/get-by-name": {"experiment": {"experiment_id": "7"}}, "runs/create": KNOWN}.get(
        path, {}
    )


def test_values_that_are_no_numbers(stand_in: StandIn, client: Callable[..., MLflow]) -> None:
    stand_in.answers = usual
    mlflow = client()
    assert mlflow.open(FACTS) == {}
    numbering = Numbering()
    values = (0.5, math.nan, math.inf, -math.inf)
    points = [numbering.point(Metric("loss", value, 2.5, rank=0, step=1)) for value in values]
    mlflow.send(points, {"0": 4})
    sent = stand_in.asked[-1][1]
    assert [each["value"] for each in sent["metrics"]] == [0.5, "NaN", "Infinity", "-Infinity"]
    assert sent["metrics"][0] == {"key": "loss", "value": 0.5, "timestamp": 2500, "step": 1}
    assert sent["tags"] == [{"key": "echelon.sent.0", "value": '{"0":4}'}]
    assert mlflow.place() == f"{stand_in.url}/#/experiments/7/runs/r1"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"MLFLOW_TRACKING_TOKEN": "t0ken"}, "Bearer t0ken"),
        (
            {"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "secret"},
            f"Basic {base64.b64encode(b'ann:secret').decode()}",
        ),
    ],
)
def test_who_asks(
    stand_in: StandIn, client: Callable[..., MLflow], variables: dict[str, str], expected: str | None
) -> None:
    stand_in.answers = usual
    client(**variables).open(FACTS)
    assert {each.get("Authorization") for each in stand_in.headers} == {expected}


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (
            401,
            {"error_code": "UNAUTHENTICATED", "message": "who?"},
            "HTTP 401, who?; MLFLOW_TRACKING_USERNAME",
        ),
        (403, b"<html>", "HTTP 403; MLFLOW_TRACKING_USERNAME"),
        (404, b"<html>not here", "HTTP 404; is MLFLOW_TRACKING_URI that of an MLflow server?"),
        (200, b"<html>a login page", "HTTP 200; is MLFLOW_TRACKING_URI that of an MLflow server?"),
        (302, b"", "HTTP 302; is MLFLOW_TRACKING_URI that of an MLflow server?"),
        (503, b"", "HTTP 503"),
        (200, b"[" * 200_000, "is MLFLOW_TRACKING_URI"),
        (200, {}, "it does not answer as MLflow does; is MLFLOW_TRACKING_URI"),
        (200, {"experiment": 7}, "it does not answer as MLflow does"),
    ],
)
def test_a_server_that_takes_nothing(
    stand_in: StandIn, client: Callable[..., MLflow], status: int, content: object, words: str
) -> None:
    stand_in.answers = lambda _: (status, content)
    with pytest.raises(Away, match=words.replace("?", r"\?")) as raised:
        client(MLFLOW_TRACKING_PASSWORD="secret", MLFLOW_TRACKING_USERNAME="ann").open(FACTS)
    assert "secret" not in str(raised.value)


def test_a_server_that_rejects_a_value(stand_in: StandIn, client: Callable[..., MLflow]) -> None:
    mlflow = client()
    stand_in.answers = usual
    mlflow.open(FACTS)
    stand_in.answers = lambda _: (400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "bad\nmore"})
    with pytest.raises(Rejected, match=r"^HTTP 400, bad$"):
        mlflow.send([Numbering().point(Metric("loss", 1.0, 0.0, rank=0))], {"0": 1})


def test_nobody_is_there(stand_in: StandIn, client: Callable[..., MLflow]) -> None:
    mlflow = MLflow(server_of({"MLFLOW_TRACKING_URI": "http://127.0.0.1:1"}))
    with pytest.raises(Away, match=r"it does not answer \(ConnectError\)"):
        mlflow.open(FACTS)
    mlflow.close()


def test_a_run_that_is_there_goes_on(stand_in: StandIn, client: Callable[..., MLflow]) -> None:
    tags = [{"key": "echelon.sent.0", "value": '{"0":3}'}]
    params = [{"key": "lr", "value": "1"}]
    there = {"info": {"run_id": "r1", "status": "FAILED"}, "data": {"tags": tags, "params": params}}
    stand_in.answers = lambda path: (200, {"runs": [there]}) if path == "runs/search" else usual(path)
    mlflow = client()
    facts = replace(FACTS, parameters={"lr": "2", "b": "1"})
    assert mlflow.open(facts) == {"0": 3}
    asked = [path for path, _ in stand_in.asked]
    assert "runs/create" not in asked
    assert ("runs/update", {"run_id": "r1", "status": "RUNNING"}) in stand_in.asked
    assert stand_in.asked[-1][1]["params"] == [{"key": "b", "value": "1"}]
    mlflow.end(Status(name="fm", uri="local://fm", state="stopped", ended=2.0))
    assert stand_in.asked[-1][1] == {"run_id": "r1", "status": "KILLED", "end_time": 2000}
