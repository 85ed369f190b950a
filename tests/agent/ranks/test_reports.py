"""Progress that ranks report as in Kubeflow's jobs: over HTTP on this machine, and as a line of output."""

from __future__ import annotations

import json
import socket
import stat
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Agents
from tests.conftest import PATIENCE

from echelon.agent.loop import Loop
from echelon.agent.ranks.reports import URL, Reports, read
from echelon.metrics.bars import see

TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"


def body(**status: Any) -> bytes:
    return json.dumps({"trainerStatus": status}).encode()


def metrics(**given: object) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in given.items()]


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            body(
                progressPercentage=41,
                estimatedRemainingSeconds=59,
                metrics=metrics(loss=0.5312345678, current_step=41, total_steps=100, current_epoch=0.41),
            ),
            "step 41/100 ETA 0:00:59 loss=0.531235",
        ),
        (body(progressPercentage=10, estimatedRemainingSeconds=3725), "━━╺ 10% 1:02:05"),
        (body(progressPercentage=0, metrics=metrics(total_steps=60)), "╺ 0%"),
        (body(metrics=metrics(current_epoch=2, lr="1e-3")), "epoch=2 lr=0.001"),
        (body(metrics=metrics(**{"a b": 1, "x": "\x1b[2J", "note": "fine"})), ""),
        (body(), ""),
        (body(progressPercentage="40%"), ""),
        (body(progressPercentage=140), ""),
        (body(metrics=metrics(current_step="١", total_steps="٣", lösung=1, loss="٣")), ""),  # noqa: RUF001
        (body(metrics=metrics(current_step=1, total_steps=0)), ""),
        (b"{}", None),
        (b"[]", None),
        (b'{"trainerStatus": 3}', None),
        (body(metrics=[{"name": "loss"}]), None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_a_report_as_a_line(report: bytes, line: str | None) -> None:
    assert read(report) == line


def test_the_line_is_what_readers_of_progress_understand() -> None:
    steps = read(
        body(estimatedRemainingSeconds=59, metrics=metrics(current_step=41, total_steps=100, loss=2))
    )
    assert steps is not None
    seen = see(steps)
    assert (seen.step, seen.steps, seen.left, seen.pairs) == (41, 100, 59.0, (("loss", 2.0),))
    share = read(body(progressPercentage=45, estimatedRemainingSeconds=61, metrics=metrics(loss=2)))
    assert share is not None
    seen = see(share)
    assert (seen.part, seen.left, seen.pairs) == (0.45, 61.0, (("loss", 2.0),))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Reports, list[tuple[int, str]]]]:
    """A server whose loop runs in a thread, and what it was told."""
    loop, told = Loop(), []
    reports = Reports(loop, str(tmp_path), 3, lambda rank, line: told.append((rank, line)))
    thread = threading.Thread(target=loop.run)
    loop.call_later(0, lambda: None)
    thread.start()
    yield reports, told
    loop.stop()
    socket.create_connection(("127.0.0.1", reports._port)).close()  # it wakes up, and sees that it is to stop
    thread.join(PATIENCE)
    reports._listener.close()
    loop.close()


def post(reports: Reports, content: bytes, *, token: str | None = None, path: str = "") -> Any:
    found = reports.variables(7)
    token = Path(found[TOKEN]).read_text() if token is None else token
    url = path and found[URL].rpartition("/ranks/")[0] + path
    return urllib.request.Request(url or found[URL], content, {"Authorization": f"Bearer {token}"})


def refusal(request: Any) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    caught.value.close()
    return caught.value.code


def test_only_who_has_the_token_is_heard(served: tuple[Reports, list[tuple[int, str]]]) -> None:
    reports, told = served
    file = Path(reports.variables(7)[TOKEN])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with urllib.request.urlopen(post(reports, body(metrics=metrics(loss=1)))) as answer:
        assert answer.status == 200
    assert refusal(post(reports, body(metrics=metrics(loss=2)), token="guessed")) == 401
    assert refusal(post(reports, body(), path="/")) == 400
    assert refusal(post(reports, b"nothing")) == 400
    odd = post(reports, body())
    odd.add_header("Content-Length", "\xb2")
    assert refusal(odd) == 400
    assert refusal(post(reports, b" " * 300_000)) == 413
    assert told == [(7, "loss=1")]


REPORTS = """
import json, os, urllib.request
token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read()
status = {"metrics": [{"name": "current_step", "value": "3"}, {"name": "total_steps", "value": "4"},
                      {"name": "loss", "value": "0.5"}]}
request = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
    json.dumps({"trainerStatus": status}).encode(), {"Authorization": "Bearer " + token})
assert urllib.request.urlopen(request).status == 200
print("told")
"""


def test_a_rank_reports_to_its_agent(agents: Agents, write_script: Callable[[str], str]) -> None:
    agents.describe(sys.executable, write_script(REPORTS))
    agents.start(0)
    assert agents.processes[0].wait(PATIENCE) == 0
    texts = [line.partition("] ")[2] for line in map(bytes.decode, agents.output(0)) if "~ [0]" in line]
    assert texts[0] == "step 3/4 loss=0.5"
    assert texts[-1] == "", "the state is taken back when the rank has ended"


def test_variables_that_are_there_already_stay(agents: Agents, write_script: Callable[[str], str]) -> None:
    """In a job of Kubeflow's own, its controller has set them."""
    agents.describe(
        sys.executable,
        write_script(f"import os; print(os.environ['{URL}'], os.environ.get('{TOKEN}'))"),
        env={URL: "https://theirs"},
    )
    agents.start(0)
    assert agents.processes[0].wait(PATIENCE) == 0
    assert any("https://theirs None" in line for line in map(bytes.decode, agents.output(0)))
