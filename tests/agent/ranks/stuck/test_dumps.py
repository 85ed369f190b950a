"""What a rank leaves that has ended by itself: NCCL's dump, as recorded on an H200, and strange pickles."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from echelon.agent.gang import hang
from echelon.agent.ranks.stuck import dumps, recorder

ANSWERS = Path(__file__).parent / "answers"
# Of one rank whose all_reduce waited for a kernel that did not end, until NCCL's watchdog gave up.
DUMP = (ANSWERS / "nccl-dump.pickle").read_bytes()
GLOO = (ANSWERS / "gloo.txt").read_bytes()
FRAMES = [
    ["all_reduce", "/env/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 1],
    ["step", "/home/ann/train.py", 88],
]


@pytest.fixture
def start(tmp_path: Path) -> str:
    return str(tmp_path / "look-0-0")


def test_the_dump_of_nccl_s_watchdog(start: str) -> None:
    Path(start + ".7.dump.0").write_bytes(DUMP)
    found = dumps.read(start, 0)[0]
    group = found["recorder"]["groups"]["0"]
    assert (found["recorder"]["rank"], group["called"], group["done"], group["ranks"]) == (0, 6, 5, [0])
    assert group["calls"]["6"][:3] == ["all_reduce", "[64, 64]", "float32"]
    assert (found["place"], found["collective"]) == ("all_reduce (train.py:10)", True)


def test_a_dump_of_another_number_is_not_the_rank_s(start: str) -> None:
    """As where each rank is a world of its own; but below torchrun it is that rank's."""
    Path(start + ".7.dump.3").write_bytes(DUMP)
    assert dumps.read(start, 0) == {}
    Path(start + ".7.12.dump.3").write_bytes(DUMP)
    assert list(dumps.read(start, 0)) == [3]


def test_of_several_ranks_the_verdict() -> None:
    """One GPU has one rank: the dump of a second one is the first one's, without its last call."""
    looks: dict[int, dict[str, Any]] = {}
    for rank in (0, 1):
        dump = dumps.unpickle(DUMP)
        dump["pg_config"]["0"]["ranks"] = "[0, 1]"
        if rank == 1:
            del dump["entries"][-1]
            dump["pg_status"]["0"]["last_enqueued_collective"] = 5
        told = recorder.read_dump(rank, dump)
        assert told is not None
        looks[rank] = {"recorder": told}
    found = hang.why_given_up(looks, {}, 0)
    assert found is not None
    assert found.sentence == "rank 1 never called all_reduce 6 ([64, 64] float32); rank 0 waits in it"
    assert hang.why_given_up(looks, {}, 1) is None, "a rank that is waited for has a cause of its own"


def test_what_a_rank_wrote_at_its_end(start: str) -> None:
    """Gloo counts a collective that has failed as done."""
    head, *rest = GLOO.split(b"\n")
    done = json.loads(rest[0])
    for entry in done["entries"]:
        entry["retired"] = True
    head = json.dumps({**json.loads(head), "frames": FRAMES}).encode()
    Path(start + ".7.last").write_bytes(b"\n".join([head, json.dumps(done).encode()]))
    found = dumps.read(start, 0)[0]
    assert (found["place"], found["collective"]) == ("all_reduce (train.py:88)", True)
    assert [group["done"] for _, group in sorted(found["recorder"]["groups"].items())] == [300, 300]


def test_a_rank_that_failed_elsewhere_waits_in_nothing(start: str) -> None:
    head, *rest = GLOO.split(b"\n")
    head = json.dumps({**json.loads(head), "frames": FRAMES[1:]}).encode()
    before = recorder.read(GLOO)
    Path(start + ".7.last").write_bytes(b"\n".join([head, *rest]))
    found = dumps.read(start, 0)[0]
    assert (found["collective"], found["recorder"]) == (False, before)


class Stranger:
    """Its pickle calls what it says."""

    def __init__(self, call: Any, *words: Any) -> None:
        self._call = (call, words)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._call


def test_nothing_that_a_pickle_names_is_called(start: str, tmp_path: Path) -> None:
    for call, words in (
        (os.mkdir, (str(tmp_path / "made"),)),
        (eval, ("__import__('os').mkdir('made')",)),
        (bytearray, (8,)),
    ):
        dump = dumps.unpickle(DUMP)
        dump["entries"][-1]["profiling_name"] = Stranger(call, *words)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            Path(start + ".7.dump.0").write_bytes(pickle.dumps(dump, protocol))
            assert dumps.read(start, 0) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["look-0-0.7.dump.0"]


def _itself() -> Any:
    entry: dict[str, Any] = dict(dumps.unpickle(DUMP)["entries"][-1])
    entry["input_sizes"] = [entry]
    return {"pg_config": {}, "entries": [entry]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        DUMP[: len(DUMP) // 2],
        pickle.dumps([1, 2]),
        pickle.dumps({"entries": 3}),
        pickle.dumps({"entries": [{}], "pg_config": {}}),
        pickle.dumps({"entries": [], "pg_config": {}}),
        pickle.dumps({"entries": [], "pg_config": {"0": {"ranks": "[" * 100_000}}}),
        pickle.dumps(_itself()),
        b"\x80\x04Pname\n.",  # a reference to something outside
        b"]" + b"]" * 10 + b"q\x00" * 10 + b".",
        b"(" * 10_000 + b"l" * 10_000 + b".",
    ],
)
def test_what_is_no_dump(start: str, data: bytes) -> None:
    Path(start + ".7.dump.0").write_bytes(data)
    assert dumps.read(start, 0) == {}


def test_a_dump_that_is_too_long_is_not_read(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "_LONGEST", len(DUMP) - 1)
    Path(start + ".7.dump.0").write_bytes(DUMP)
    assert dumps.read(start, 0) == {}


def test_the_dump_is_kept_for_torch_s_own_tools(start: str, tmp_path: Path) -> None:
    dumps.keep(start, str(tmp_path / "logs"))
    assert not (tmp_path / "logs").exists(), "there was none"
    Path(start + ".7.dump.0").write_bytes(DUMP)
    dumps.keep(start, str(tmp_path / "logs"))
    assert (tmp_path / "logs" / "flight-recorder" / "rank_0").read_bytes() == DUMP
    dumps.keep(start, "/dev/null/logs")  # no folder can be made: no error
