"""Lines that the cluster no longer has are read from this machine, what came since from the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.engines.kubernetes.small import RUNNING, pod
from tests.engines.kubernetes.stand_in import StandIn, streams

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.follow.saved_logs import read_with_saved
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
from echelon.engines.kubernetes.pods import Pod
from echelon.model.output.log import LogLine, parse_line
from echelon.model.status import WorkerStatus

WORKERS = (WorkerStatus(worker=0, ranks=(0,)), WorkerStatus(worker=1, ranks=(1,)))


@pytest.fixture
def api(access: Access, stand_in: StandIn) -> Api:
    return Api(access, "ours", patience=0.1)


def log(rank: int, numbers: Sequence[int]) -> bytes:
    return b"".join(b"%d.5 %d [%d] %d\n" % (1000 + each, each, rank, each) for each in numbers)


def save(logs: Path, uid: str, worker: int, numbers: Sequence[int]) -> None:
    streamed = StreamedLogs(logs, pytest.fail)
    streamed.begin(uid, worker)
    streamed.take(uid, [parse_line(raw, worker) for raw in log(worker, numbers).splitlines()])
    streamed.close()


def serve(stand_in: StandIn, logs: dict[str, bytes]) -> None:
    def answer(handler: object) -> None:
        path: str = handler.path  # type: ignore[attr-defined]
        streams([logs[path.rpartition("/pods/")[2].partition("/")[0]]])(handler)  # type: ignore[arg-type]

    stand_in.answer_with(answer)


def shown(api: Api, pods: list[Pod], logs: Path | None) -> list[tuple[int | None, str]]:
    found = read_with_saved(api, pods, logs, WORKERS)
    return [(each.rank, each.text) for each in found if isinstance(each, LogLine)]


def test_a_pod_that_is_gone(api: Api, stand_in: StandIn, tmp_path: Path) -> None:
    save(tmp_path, "zero", 0, range(2))
    save(tmp_path, "one", 1, range(2))
    serve(stand_in, {"p0": log(0, range(3))})
    there = [pod(0, state=RUNNING, name="p0", uid="zero")]
    assert shown(api, there, tmp_path) == [(1, "0"), (1, "1"), (0, "0"), (0, "1"), (0, "2")]
    assert shown(api, [], tmp_path) == [(0, "0"), (0, "1"), (1, "0"), (1, "1")]
    assert shown(api, there, None) == [(0, "0"), (0, "1"), (0, "2")]


def test_a_log_that_was_turned_over(api: Api, stand_in: StandIn, tmp_path: Path) -> None:
    """Here are its first lines, there are its last: each line once, whatever was not noted yet."""
    save(tmp_path, "zero", 0, range(5))
    with (tmp_path / "rank-0.log").open("a") as file:
        file.write("5\n")  # written, and not noted yet
    serve(stand_in, {"p0": log(0, range(3, 8))})
    there = [pod(0, state=RUNNING, name="p0", uid="zero")]
    assert shown(api, there, tmp_path) == [(0, str(each)) for each in range(8)]
    serve(stand_in, {"p0": log(0, range(7, 9))})
    gap = "[2 lines are missing here: the cluster has thrown them away]"
    expected = [*((0, str(each)) for each in range(5)), (None, gap), (0, "7"), (0, "8")]
    assert shown(api, there, tmp_path) == expected


def test_what_a_replaced_pod_wrote(api: Api, stand_in: StandIn, tmp_path: Path) -> None:
    streamed = StreamedLogs(tmp_path, pytest.fail)
    for uid, text in (("old", b"before"), ("new", b"after")):
        streamed.begin(uid, 1)
        streamed.take(uid, [parse_line(b"1.0 0 [1] " + text, 1)])
    streamed.close()
    serve(stand_in, {"p1": b"1.0 0 [1] after\n2.0 1 [1] and on\n"})
    there = [pod(1, state=RUNNING, name="p1", uid="new")]
    assert shown(api, there, tmp_path) == [(1, "before"), (1, "after"), (1, "and on")]


def test_fetched_logs_are_complete(api: Api, stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("0\n1\n2\n")
    serve(stand_in, {"p0": log(0, [2])})
    there = [pod(0, state=RUNNING, name="p0", uid="zero")]
    assert shown(api, there, tmp_path) == [(0, "0"), (0, "1"), (0, "2")]
