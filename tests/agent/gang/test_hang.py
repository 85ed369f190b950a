"""The verdict on ranks that hang: recordings of real ones (`hangs/record.py`, on an H200 `record_gpu.py`), by
recorders and without.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from echelon.agent.gang import hang

HANGS = Path(__file__).parent / "hangs"
ONE = "all_reduce 1 of process group %d ([64, 64] float32)"
BOTH = "deadlock of process groups:"
STORE, GROUP = "_create_c10d_store (hang.py:36)", "_create_gloo_process_group (hang.py:36)"
SIX = "all_reduce 6 ([64, 64] float32)"


def recorded(name: str) -> dict[int, dict[str, Any]]:
    return {int(rank): look for rank, look in json.loads((HANGS / f"{name}.json").read_text()).items()}


def without_recorder(looks: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {
        rank: {key: value for key, value in look.items() if key != "recorder"} for rank, look in looks.items()
    }


@pytest.mark.parametrize(
    ("name", "kind", "ranks", "sentence"),
    [
        ("asleep-2", hang.MISSING, [1], f"rank 1 never called {SIX}; rank 0 waits in it"),
        ("asleep-4", hang.MISSING, [3], f"rank 3 never called {SIX}; ranks 0, 1, 2 wait in it"),
        ("asleep-8", hang.MISSING, [7], f"rank 7 never called {SIX}; ranks 0-6 wait in it"),
        ("computes-2", hang.MISSING, [1], f"rank 1 never called {SIX}; rank 0 waits in it"),
        ("computes-4", hang.MISSING, [3], f"rank 3 never called {SIX}; ranks 0, 1, 2 wait in it"),
        ("reads-2", hang.MISSING, [1], f"rank 1 never called {SIX}; rank 0 waits in it"),
        ("reads-4", hang.MISSING, [3], f"rank 3 never called {SIX}; ranks 0, 1, 2 wait in it"),
        ("stopped-2", hang.MISSING, [1], f"rank 1 is stopped (SIGSTOP) before {SIX}; rank 0 waits in it"),
        (
            "stopped-4",
            hang.MISSING,
            [3],
            f"rank 3 is stopped (SIGSTOP) before {SIX}; ranks 0, 1, 2 wait in it",
        ),
        (
            "order-2",
            hang.DIFFERS,
            [0, 1],
            f"rank 1 called broadcast 6 ([64, 64] float32), where rank 0 called {SIX}",
        ),
        (
            "order-4",
            hang.DIFFERS,
            [3],
            f"rank 3 called broadcast 6 ([64, 64] float32), where ranks 0, 1, 2 called {SIX}",
        ),
        (
            "part-4",
            hang.MISSING,
            [3],
            "rank 3 never called all_reduce 1 of ranks 0, 3 ([64, 64] float32); rank 0 waits in it",
        ),
        (
            "groups-4",
            hang.CYCLE,
            [0, 3],
            f"{BOTH} rank 0 waits for rank 3 in {ONE % 1}, and rank 3 waits for rank 0 in {ONE % 2}",
        ),
        ("nccl-asleep-2", hang.MISSING, [1], f"rank 1 never called {SIX}; rank 0 waits in it"),
        (
            "nccl-order-2",
            hang.DIFFERS,
            [0, 1],
            f"rank 1 called broadcast 6 ([64, 64] float32), where rank 0 called {SIX}",
        ),
        (
            "nccl-sizes-2",
            hang.DIFFERS,
            [0, 1],
            f"rank 1 called all_reduce 6 ([128, 64] float32), where rank 0 called {SIX}",
        ),
        (
            "start-4",
            hang.STACKS,
            [3],
            f"rank 3 is in wait_long (hang.py:18); rank 0 is in {STORE}, ranks 1, 2 are in {GROUP}",
        ),
    ],
)
def test_the_rank_that_is_waited_for_is_named(name: str, kind: str, ranks: list[int], sentence: str) -> None:
    found = hang.verdict(recorded(name))
    assert (found.kind, found.ranks, found.sentence) == (kind, ranks, sentence)


@pytest.mark.parametrize(("name", "ranks"), [("groups-2", [0, 1]), ("groups-8", [0, 7]), ("start-2", [1])])
def test_with_other_numbers_of_ranks_too(name: str, ranks: list[int]) -> None:
    assert hang.verdict(recorded(name)).ranks == ranks


@pytest.mark.parametrize("name", ["asleep-2", "asleep-8", "computes-4", "reads-4", "stopped-4", "order-4"])
def test_without_a_recorder_by_the_odd_one_out(name: str) -> None:
    found = hang.verdict(without_recorder(recorded(name)))
    assert (found.kind, found.ranks) == (hang.STACKS, [int(name[-1]) - 1])


def test_without_a_recorder_it_says_so() -> None:
    said = "by stacks alone: no flight recorder tells of collectives"
    assert hang.verdict(without_recorder(recorded("reads-4"))).lines[-1] == said
    assert said not in hang.verdict(recorded("reads-4")).lines


def test_lines_say_where_ranks_are_and_what_they_read() -> None:
    assert hang.verdict(recorded("reads-4")).lines == [
        "rank 3: load_batch (hang.py:24), reading /data/part-17",
        "ranks 0, 1, 2: all_reduce (hang.py:65)",
    ]


def test_other_sizes() -> None:
    """Gloo aborts a rank at once that gets more than it asked for, and NCCL had two ranks on one GPU: one
    rank's last call of another recording is given other sizes.
    """
    looks = recorded("order-4")
    looks[3]["recorder"]["groups"]["0"]["calls"]["6"][:2] = ["all_reduce", "[32, 64]"]
    found = hang.verdict(looks)
    assert (found.kind, found.ranks) == (hang.DIFFERS, [3])
    assert found.sentence == (
        "rank 3 called all_reduce 6 ([32, 64] float32), where ranks 0, 1, 2 called all_reduce 6"
        " ([64, 64] float32)"
    )


def test_collectives_whose_sizes_may_differ() -> None:
    looks = recorded("order-4")
    for rank, look in looks.items():
        look["recorder"]["groups"]["0"]["calls"]["6"][:2] = ["all_gather", f"[{rank}]"]
    assert hang.verdict(looks).kind == hang.TOGETHER


def test_a_collective_that_all_have_called() -> None:
    looks = recorded("asleep-4")
    looks[3] = dict(looks[2], recorder=dict(looks[2]["recorder"], rank=3))
    found = hang.verdict(looks)
    assert (found.kind, found.ranks) == (hang.TOGETHER, [0, 1, 2, 3])
    assert found.sentence == f"all 4 ranks have called {SIX}, and it does not end"


def test_a_rank_that_has_exited() -> None:
    """Peers of Gloo fail at once when one has gone, so that this is a recording without one of its ranks."""
    looks = recorded("asleep-4")
    del looks[3]
    found = hang.verdict(looks, {3: "had exited 0"})
    assert found.ranks == [3]
    assert found.sentence == f"rank 3 had exited 0 before {SIX}; ranks 0, 1, 2 wait in it"


def test_a_rank_that_does_not_answer() -> None:
    looks = recorded("asleep-4")
    looks[3] = {"state": "R", "recorder": None}
    found = hang.verdict(looks)
    assert found.ranks == [3]
    assert found.sentence.startswith("rank 3 did not answer, and may not have called all_reduce 6 ")


def test_ranks_that_are_each_a_world_of_their_own_are_not_compared() -> None:
    looks = recorded("asleep-2")
    looks[1]["recorder"]["rank"] = 0
    assert hang.verdict(looks).kind == hang.STACKS


def test_who_waits_for_nobody_is_not_called_stuck() -> None:
    """A fit, a compilation, a long save: one rank, or several without a collective."""
    fit = {"place": "fit (train.py:3)", "collective": False, "state": "R", "trace": 1}
    alone = hang.verdict({0: fit})
    assert (alone.kind, alone.sentence) == (hang.ELSEWHERE, "rank 0 is in fit (train.py:3)")
    assert alone.kind not in hang.WAITS
    both = hang.verdict({0: fit, 1: fit})
    assert (both.kind, both.sentence) == (hang.ELSEWHERE, "ranks 0, 1 are in fit (train.py:3)")


def test_nothing_is_known() -> None:
    assert hang.verdict({}).kind == hang.ELSEWHERE
    assert hang.verdict({0: {}, 1: {}}).sentence == "ranks 0, 1 are in a place that is not known"


def test_what_has_to_change_while_a_gang_goes_on() -> None:
    before, after = recorded("asleep-2"), recorded("asleep-2")
    after[0]["trace"] = 1
    assert hang.state_of(before) == hang.state_of(after), "collectives tell, where they are known"
    after[0]["recorder"]["groups"]["0"]["called"] += 1
    assert hang.state_of(before) != hang.state_of(after)
    before, after = without_recorder(before), without_recorder(after)
    assert hang.state_of(before) != hang.state_of(after)
