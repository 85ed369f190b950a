"""What torch's flight recorder has written, reduced to what ranks are compared by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from echelon.agent.ranks.stuck import recorder

ANSWER = (Path(__file__).parent / "answers" / "gloo.txt").read_bytes()  # of a real rank: three entries


def changed(**fields: Any) -> bytes:
    """The answer with other fields in its last entry."""
    lines = ANSWER.split(b"\n")
    dump = json.loads(lines[1])
    dump["entries"][-1].update(fields)
    lines[1] = json.dumps(dump).encode()
    return b"\n".join(lines)


def test_the_last_collectives_of_each_group() -> None:
    read = recorder.read(ANSWER)
    assert read is not None
    assert (read["rank"], set(read["groups"])) == (0, {"0", "1"})
    world, part = read["groups"]["0"], read["groups"]["1"]
    assert (world["ranks"], world["called"], world["done"]) == ([0, 1], 301, 300)
    assert world["calls"]["301"][:3] == ["all_reduce", "[1024, 1024]", "float32"]
    assert (part["called"], part["done"], part["calls"]["300"][0]) == (300, 300, "broadcast")


def test_what_gloo_counts_as_done_last_may_stay_behind() -> None:
    """Seen with two ranks: its threads end in any order, and the one that writes last decides."""
    lines = ANSWER.split(b"\n")
    dump = json.loads(lines[1])
    for status in dump["pg_status"].values():
        status["last_completed_collective"] = "297"
    lines[1] = json.dumps(dump).encode()
    read = recorder.read(b"\n".join(lines))
    assert read is not None
    assert [group["done"] for _, group in sorted(read["groups"].items())] == [300, 300]


def test_nccl_s_are_read_from_their_own_recorder() -> None:
    """The shape of NCCL's entries is that of Gloo's, with a state that changes."""
    first = ANSWER.split(b"\n")[0]
    nccl = changed(state="completed", retired=False, profiling_name="nccl:_all_gather_base").split(b"\n")[1]
    read = recorder.read(b"\n".join([first, b'{"entries": [], "pg_status": {}}', nccl]))
    assert read is not None
    group = read["groups"]["0"]
    assert (group["done"], group["calls"]["301"][0]) == (301, "all_gather_base")


def test_a_real_answer_with_nccl() -> None:
    """Of one rank on an H200, after five collectives; Gloo's part of the answer is there and empty."""
    read = recorder.read((Path(__file__).parent / "answers" / "nccl.txt").read_bytes())
    assert read is not None
    group = read["groups"]["0"]
    assert (group["called"], group["done"], group["ranks"]) == (5, 5, [0])
    assert group["calls"]["5"][:3] == ["all_reduce", "[64]", "float32"]


def test_what_two_ranks_send_each_other_is_left_out() -> None:
    read = recorder.read(changed(is_p2p=True))
    assert read is not None
    assert read["groups"]["0"]["called"] == 301, "as the status of the group says"
    assert "301" not in read["groups"]["0"]["calls"]


def test_a_rank_without_a_group() -> None:
    assert recorder.read(b"{}\n") == {"rank": None, "groups": {}}


@pytest.mark.parametrize("text", [b"", b"\n", b"[]\n", b"{", b"{}\n[]\n", b'{}\n{"entries":[{}]}\n'])
def test_what_is_no_answer(text: bytes) -> None:
    assert recorder.read(text) is None
