"""Code that a client sends when the leader has started, and that the other workers copy from it: real agents
on loopback, real copies.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.pods import Pods
from tests.engines.kubernetes.local_pod import Pod

from echelon.agent.setup import sent_code
from echelon.agent.setup.sent_code import PIECE, LeadersCode, PeersCode
from echelon.agent.task import RUN_OVER
from echelon.bundle import pack_files
from echelon.engines.kubernetes.files import reconnect
from echelon.engines.kubernetes.files.transfer import send_tree

CODE = pack_files(
    {
        "main.py": b"import os\nprint(len(open('weights', 'rb').read()), os.listdir('.') != [])\n",
        "weights": os.urandom(2 * PIECE + 1000),
    }
)
SAID = [f"{2 * PIECE + 1000} True"]


def start(pods: Pods, workers: int = 3, **changes: Any) -> None:
    pods.describe(sys.executable, "main.py", workers=workers)
    for worker in reversed(range(workers)):
        place = pods.folder / f"space-{worker}"
        bundle = {
            "sent": str(place / "sent" / "code.tar.gz"),
            "size": len(CODE.data),
            "digest": CODE.digest,
            "target": str(place / "code"),
            **changes,
        }
        pods.start(worker, cwd=str(place / "code"), bundle=bundle)
    pods.wait_for("worker-started", of=0)


def archive(pods: Pods, data: bytes = CODE.data) -> Path:
    path = pods.folder / "archive"
    path.write_bytes(data)
    return path


def target(pods: Pods) -> Path:
    return pods.folder / "space-0" / "sent" / "code.tar.gz"


def test_it_is_sent_once_and_copied_by_the_others(pods: Pods) -> None:
    start(pods)
    for worker in (1, 2):
        pods.wait_for("worker-started", of=worker)
    assert pods.said(0) == []
    send_tree(Pod(pods.archive).open, archive(pods), str(target(pods)))
    assert [pods.code(worker) for worker in range(3)] == [0, 0, 0], pods.log(0)
    assert pods.said(0) == pods.said(1) == pods.said(2) == SAID
    assert target(pods).exists()
    assert not (pods.folder / "space-1" / "sent" / "code.tar.gz").exists()


def test_a_transfer_that_is_interrupted_is_repeated(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "FIRST_DELAY", 0.01)
    start(pods, workers=2)
    opener = Pod(pods.archive)
    opener.breaks = [PIECE, PIECE // 2]
    troubles: list[str] = []
    send_tree(
        opener.open,
        archive(pods),
        str(target(pods)),
        progress=lambda now: troubles.append(now.trouble) if now.trouble else None,
    )
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0], pods.log(0)
    assert pods.said(1) == SAID
    assert len(troubles) == 2


def test_a_client_that_sends_nothing(pods: Pods) -> None:
    """As one that was killed: the run ends, with a reason."""
    start(pods, workers=2, patience=0.3)
    assert pods.code(0) == RUN_OVER
    assert pods.code(1) == 0
    cause = pods.last_words()["cause"]
    assert cause["exit_code"] == 116
    assert cause["summary"] == (
        "worker 0: the code did not arrive: the command that started the run has sent nothing for 0.3 s"
    )


@pytest.mark.parametrize("damage", ["other bytes", "too short"])
def test_code_that_is_not_what_was_announced(pods: Pods, damage: str) -> None:
    data = os.urandom(len(CODE.data)) if damage == "other bytes" else CODE.data[: PIECE // 2]
    start(pods, workers=2)
    send_tree(Pod(pods.archive).open, archive(pods, data), str(target(pods)))
    assert pods.code(0) == RUN_OVER
    assert pods.code(1) == 0
    summary = pods.last_words()["cause"]["summary"]
    assert "the bundle is damaged" in summary or f"only {PIECE // 2} of its" in summary
    assert pods.said(0) == pods.said(1) == []
    assert not (pods.folder / "space-1" / "code").exists()


# The two parts, without a network between them


class Later:
    """A loop that only remembers what is due."""

    def __init__(self) -> None:
        self.due: list[Callable[[], object]] = []

    def call_later(self, _delay: float, action: Callable[[], object]) -> None:
        self.due.append(action)


def leaders(path: Path, answers: list[tuple[int, dict[str, object]]], **more: Any) -> LeadersCode:
    def send(worker: int, message: dict[str, object]) -> None:
        answers.append((worker, message))

    loop = more.pop("loop", Later())
    absent = more.pop("absent", lambda _reason: None)
    return LeadersCode(loop, {"sent": str(path), **more}, send, lambda: None, absent)


def test_a_client_that_sends_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes: the time counts from when a copy was last seen beside the leader."""
    now, copies, loop, reasons = [100.0], [True], Later(), list[str]()
    monkeypatch.setattr("echelon.agent.setup.sent_code.time.monotonic", lambda: now[0])
    monkeypatch.setattr(sent_code, "is_copying", lambda: copies[0])
    leaders(tmp_path / "a", [], loop=loop, absent=reasons.append, patience=10.0).begin()
    for _ in range(20):
        now[0] += 9.0
        loop.due.pop()()
    copies[0] = False
    now[0] += 9.0
    loop.due.pop()()
    assert reasons == []
    now[0] += 2.0
    loop.due.pop()()
    assert len(reasons) == 1
    assert loop.due == []


def test_requests_wait_for_the_archive(tmp_path: Path) -> None:
    answers: list[tuple[int, dict[str, object]]] = []
    made = leaders(tmp_path / "a", answers)
    for offset in (None, -1, "0", True, 0):
        made.request(1, offset)
    assert answers == []
    (tmp_path / "a").write_bytes(b"x" * (PIECE + 5))
    made.begin()
    assert [(worker, message["offset"]) for worker, message in answers] == [(1, 0)]
    made.request(2, PIECE)
    assert answers[-1] == (2, {"say": "code", "offset": PIECE, "data": base64.b64encode(b"x" * 5).decode()})
    made.cancel()
    made.request(3, 0)
    assert len(answers) == 2


def test_pieces_are_taken_in_order_and_once(tmp_path: Path) -> None:
    asked: list[dict[str, object]] = []
    done: list[str] = []
    path = tmp_path / "sent" / "a"
    made = PeersCode(
        {"sent": str(path), "size": 7},
        asked.append,
        lambda: done.append("there"),
        lambda error: done.append(str(error)),
    )

    def piece(offset: int, data: bytes) -> dict[str, object]:
        return {"say": "code", "offset": offset, "data": base64.b64encode(data).decode()}

    made.begin()
    made.take(piece(0, b"abcd"))
    made.begin()  # another leader
    made.take(piece(0, b"abcd"))  # the answer of the first
    made.take(piece(4, b"efg"))
    made.take(piece(4, b"efg"))
    assert path.read_bytes() == b"abcdefg"
    assert [message["offset"] for message in asked] == [0, 4, 4]
    assert done == ["there"]


@pytest.mark.parametrize("trouble", ["nothing", "no folder", "no pieces"])
def test_a_copy_that_cannot_go_on(tmp_path: Path, trouble: str) -> None:
    done: list[str] = []
    (tmp_path / "file").write_text("")
    folder = "file" if trouble == "no folder" else "sent"
    made = PeersCode(
        {"sent": str(tmp_path / folder / "a"), "size": 7},
        lambda _: None,
        lambda: done.append("there"),
        lambda error: done.append(str(error)),
    )
    data = {"nothing": "", "no folder": "YWJj", "no pieces": "a"}[trouble]
    made.take({"say": "code", "offset": 0, "data": data})
    made.take({"say": "code", "offset": 0, "data": data})
    assert len(done) == 1
    assert done != ["there"]
