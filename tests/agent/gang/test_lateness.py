"""Which rank the others wait for: recordings of real ones (`late/record.py`), and when ranks are asked."""

from __future__ import annotations

import copy
import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from tests.agent.gangs import NOW, end, running

from echelon.agent.gang import lateness
from echelon.agent.gang.decisions import Gang
from echelon.agent.gang.lateness import Tally, tally
from echelon.agent.ranks.stuck import recorder

LATE = Path(__file__).parent / "late"
Answers = dict[int, dict[str, Any]]


def recorded(name: str) -> list[Answers]:
    """What ranks told when they were asked, and a few seconds later."""
    asked = json.loads((LATE / f"{name}.json").read_text())
    return [{int(rank): told for rank, told in answers.items()} for answers in asked]


def further(name: str, count: int) -> list[Answers]:
    """The same, and then as many answers as if the ranks went on in the same way: each has other numbers."""
    first, second = recorded(name)
    found = [first]
    for number in range(count):
        later = copy.deepcopy(second)
        for told in later.values():
            for group in told["recorder"]["groups"].values():
                group["first"] += 1000 * number
        found.append(later)
    return found


def compared(name: str, ahead: dict[int, float] | None = None) -> Tally:
    seen: dict[str, int] = {}
    first, second = recorded(name)
    assert not tally(first, ahead or {}, seen).called, "it may be the start of the ranks"
    return tally(second, ahead or {}, seen)


@pytest.mark.parametrize(
    "name", ["asleep-2", "asleep-4", "buckets-2", "buckets-4", "loads-2", "loads-4", "group-4"]
)
def test_the_rank_that_others_wait_for(name: str) -> None:
    odd = int(name[-1]) - 1
    found = compared(name)
    shares = {rank: found.waits.get(rank, 0.0) / found.span for rank in found.called}
    assert shares.pop(odd) > 0.25
    assert sum(shares.values()) < 0.05
    assert 0.015 < found.late[odd] / found.called[odd] < 0.03, "20 ms, or 200 in each tenth step"


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_of_which_none_is_late(ranks: int) -> None:
    found = compared(f"even-{ranks}")
    assert len(found.called) == ranks
    assert all(seconds < 0.05 * found.span for seconds in found.waits.values())


def test_a_rank_that_loads_for_long_now_and_then_is_not_last_most_of_the_time() -> None:
    found = compared("loads-4")
    assert found.last[3] < found.called[3] / 2
    assert found.waits[3] > 0.5 * found.span


def test_ranks_of_another_group_are_not_compared() -> None:
    assert set(compared("group-4").called) == {2, 3}


def test_async_collectives_of_one_step_are_waited_for_once() -> None:
    """Eight calls in a row, each 20 ms late: the others have waited for 20 ms, not for 160."""
    found = compared("buckets-2")
    assert found.late[1] > 2 * found.waits[1]
    assert found.waits[1] < found.span


@pytest.mark.parametrize("by", [5.0, -300.0])
def test_clocks_that_are_apart_are_put_right(by: float) -> None:
    exact, shifted = compared("asleep-4"), recorded("asleep-4")
    for answers in shifted:
        answers[1]["recorder"]["groups"]["0"]["times"][0] += round(by * 1e6)
    seen: dict[str, int] = {}
    tally(shifted[0], {1: by}, seen)
    found = tally(shifted[1], {1: by}, seen)
    assert found.last == exact.last
    assert found.span == pytest.approx(exact.span, abs=1e-3)


@pytest.mark.parametrize("missing", ["answer", "group"])
def test_without_the_answer_of_each_rank_nothing_is_said(missing: str) -> None:
    seen: dict[str, int] = {}
    first, second = recorded("asleep-4")
    tally(first, {}, seen)
    if missing == "answer":
        second[3]["recorder"] = None
    else:
        del second[3]["recorder"]["groups"]["0"]
    assert not tally(second, {}, seen).called


def test_of_very_many_ranks_only_the_newest_calls_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "_MOST_TIMES", 4 * 30)
    assert compared("asleep-4").called[0] == 30


class Life:
    """A gang of one rank for each worker, and what its agents tell as time goes by."""

    def __init__(
        self, ranks: int, clocks: tuple[str, ...] = (), ahead: tuple[float, ...] = (), **rules: Any
    ) -> None:
        self.gang: Gang = running(ranks, **rules)
        self.ranks, self.clocks, self.ahead = ranks, clocks or ("a",) * ranks, ahead or (0.0,) * ranks
        self.now = NOW
        self.asked: list[float] = []
        self.answers: deque[Answers] = deque()

    def sample(self, rank: int) -> dict[str, Any]:
        at = 1.79e9 + self.now + self.ahead[rank]
        return {"ranks": [{"rank": rank, "silent": 0.0}], "silent": 0.0, "at": at, "clock": self.clocks[rank]}

    def go_on(self, seconds: float, silent: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        """Samples come every second; those ranks answer no question."""
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            for rank in range(self.ranks):
                self.gang.sampled(rank, self.sample(rank), self.now)
            out, self.gang.outbox = self.gang.outbox, []
            orders = {worker: order for worker, order in out if order["say"] == "time"}
            if orders:
                self.asked.append(self.now)
                answers = self.answers.popleft() if self.answers else {}
                for worker, order in orders.items():
                    if worker is not None and worker not in silent:
                        told = {str(worker): answers.get(worker, {})}
                        self.gang.timed(worker, 0, order["number"], told, self.now)

    def late(self, rank: int) -> dict[str, Any] | None:
        (each,) = self.gang.with_lateness(self.sample(rank))["ranks"]
        assert each["rank"] == rank
        late: dict[str, Any] | None = each["late"]
        return late


def test_ranks_are_asked_soon_and_then_once_a_minute() -> None:
    life = Life(4)
    life.answers.extend([{}, {}, *further("asleep-4", 3)])
    life.go_on(200)
    assert [int(at - life.asked[0]) for at in life.asked] == [0, 5, 10, 15, 20, 25, 85, 145]


def test_ranks_that_tell_nothing_are_not_asked_so_often_for_ever() -> None:
    life = Life(2)
    life.go_on(600)
    assert [int(at - life.asked[0]) for at in life.asked[58:]] == [290, 295, 355, 415, 475, 535, 595]


def test_samples_tell_how_late_each_rank_comes() -> None:
    life = Life(4)
    life.answers.extend(further("asleep-4", 3))
    life.go_on(14)
    assert life.late(3) is None, "for a moment any rank may be late"
    life.go_on(4)
    late = life.late(3)
    assert late is not None
    assert (late["collectives"], late["last"], late["same_clock"]) == (107 + 200 + 200, 1.0, True)
    assert 0.02 <= late["mean"] <= 0.03
    assert 0.5 < late["waits"] < 0.6
    others = [life.late(rank) or {} for rank in range(3)]
    assert [(each["last"], each["waits"]) for each in others] == [(0.0, 0.0)] * 3
    life.go_on(600)
    assert life.late(3) is None, "what was so long ago says nothing of now"


def test_a_moment_in_which_a_rank_was_late_is_no_rule() -> None:
    life = Life(2)
    answers = further("even-2", 3)
    answers[2] = {rank: copy.deepcopy(answers[2][rank]) for rank in answers[2]}
    answers[2][1]["recorder"]["groups"]["0"]["times"][0] += 20_000
    life.answers.extend(answers)
    life.go_on(18)
    late = life.late(1)
    assert late is not None
    assert late["mean"] > 0.005
    assert late["waits"] < 0.05


def test_clocks_of_other_machines_are_compared_by_samples() -> None:
    life = Life(4, clocks=("a", "a", "b", "b"), ahead=(0.0, 0.0, 40.0, 40.0))
    for answers in further("asleep-4", 3):
        for rank in (2, 3):
            answers[rank]["recorder"]["groups"]["0"]["times"][0] += 40_000_000
        life.answers.append(answers)
    life.go_on(18)
    late = life.late(3)
    assert late is not None
    assert (late["last"], late["same_clock"]) == (1.0, False)
    assert 0.02 <= late["mean"] <= 0.03


def test_a_worker_that_does_not_answer_is_not_waited_for() -> None:
    life = Life(2)
    life.answers.extend(recorded("asleep-2"))
    life.go_on(40, silent={1})
    assert len(life.asked) > 3
    assert life.late(1) is None


def test_a_single_rank_is_asked_nothing() -> None:
    life = Life(1)
    life.go_on(100)
    assert life.asked == []


def test_one_thing_is_asked_at_a_time() -> None:
    """An answer to the other question would be taken for that to this one."""
    life = Life(2, stall=10.0)  # a look every 2.5 seconds
    gang = life.gang

    def orders() -> list[dict[str, object]]:
        out, gang.outbox = gang.outbox, []
        return [order for worker, order in out if worker == 0]

    def sampled(at: float) -> list[dict[str, object]]:
        for rank in range(2):
            gang.sampled(rank, life.sample(rank), at)
        return orders()

    (look,) = sampled(NOW)
    assert look["say"] == "look"
    assert sampled(NOW + 3) == [], "the answers to the look are awaited"
    for rank in range(2):
        gang.looked(rank, 0, look["number"], {str(rank): {}}, NOW + 3.1)
    (second,) = orders()
    for rank in range(2):
        gang.looked(rank, 0, second["number"], {str(rank): {}}, NOW + 3.2)
    (question,) = orders()
    assert (second["say"], question["say"]) == ("look", "time")
    assert sampled(NOW + 6) == []
    for rank in range(2):
        gang.timed(rank, 0, question["number"], {str(rank): {}}, NOW + 6.1)
    (third,) = orders()
    assert third["say"] == "look"


def test_a_new_generation_knows_nothing_of_the_last() -> None:
    life = Life(2, restarts=1)
    life.answers.extend(further("asleep-2", 3))
    life.go_on(18)
    assert life.late(1) is not None
    gang = life.gang
    gang.failed(0, 0, end(0), life.now)
    for worker in range(2):
        gang.stopped(worker, 0, life.now)
    for worker in range(2):
        gang.ready(worker, 1, [20000], life.now)
    assert gang.phase == "running"
    assert life.late(1) is None


def test_times_travel_as_what_lies_between_them() -> None:
    text = (LATE.parents[1] / "ranks" / "stuck" / "answers" / "gloo.txt").read_bytes()
    told = recorder.read_times(text)
    assert told == {
        "rank": 0,
        "groups": {
            "0": {"ranks": [0, 1], "first": 300, "times": [1795031909421929, 638]},
            "1": {"ranks": [0, 1], "first": 300, "times": [1795031909422302]},
        },
    }
    assert recorder.read_times(b"{}\n") == {"rank": None, "groups": {}}
    assert recorder.read_times(b"") is None


def test_a_gap_in_what_a_rank_tells_ends_it() -> None:
    text = (LATE.parents[1] / "ranks" / "stuck" / "answers" / "nccl.txt").read_bytes()
    head, gloo, nccl, *_ = text.split(b"\n")
    dump = json.loads(nccl)
    assert [each["collective_seq_id"] for each in dump["entries"]] == [1, 2, 3, 4, 5]
    del dump["entries"][1]
    told = recorder.read_times(b"\n".join([head, gloo, json.dumps(dump).encode()]))
    assert told is not None
    assert (told["groups"]["0"]["first"], len(told["groups"]["0"]["times"])) == (3, 3)
