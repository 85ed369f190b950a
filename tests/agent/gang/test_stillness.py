"""When a gang is looked at, and when what was seen means that it is stuck: without sockets or clocks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.agent.gang.test_hang import recorded, without_recorder
from tests.agent.gangs import NOW, end, events, running, said

from echelon.agent.gang.decisions import Gang
from echelon.agent.gang.stillness import SAID_AFTER, lasting
from echelon.agent.ranks.usage.quiet import Quiet

STALL = 600.0
FIT = {"place": "fit (train.py:3)", "collective": False, "state": "R", "trace": 1}


class Life:
    """A gang of one rank for each worker, and what its agents tell as time goes by."""

    def __init__(self, looks: dict[int, dict[str, Any]], stall: float | None = STALL) -> None:
        self.gang: Gang = running(len(looks), **({} if stall is None else {"stall": stall}))
        self.looks = looks
        self.now = NOW
        self.printed = dict.fromkeys(looks, NOW)
        self.asked: list[dict[str, object]] = []
        self.idle = 0.0

    def go_on(self, seconds: float, change: Any = lambda: None) -> None:
        """Samples come every 10 seconds, and an answer to each look, after `change` was called."""
        end = self.now + seconds
        while self.now < end and self.gang.phase == "running":
            self.now += 10.0
            for rank in self.looks:
                silent = self.now - self.printed[rank]
                sample = {
                    "idle": self.idle,
                    "silent": silent,
                    "ranks": [{"rank": rank, "silent": silent}],
                }
                self.gang.sampled(rank, sample, self.now)
            out, self.gang.outbox = self.gang.outbox, []
            orders = {worker: order for worker, order in out if order["say"] == "look"}
            if orders:
                change()
            for worker, order in orders.items():
                assert worker is not None
                self.asked.append(order)
                look = {**self.looks[worker]}
                if not order["stacks"]:
                    look = {key: value for key, value in look.items() if key in ("recorder", "state")}
                self.gang.looked(worker, 0, order["number"], {str(worker): look}, self.now)
            self.gang.outbox += [message for message in out if message[1]["say"] != "look"]

    def cause(self) -> dict[str, Any]:
        for rank in self.looks:
            self.gang.stopped(rank, 0, self.now)
        assert self.gang.verdict is not None
        cause = self.gang.verdict["cause"]
        assert isinstance(cause, dict)
        return cause


def test_ranks_that_wait_for_one_are_ended_with_the_verdict() -> None:
    life = Life(recorded("reads-4"))
    life.go_on(STALL - 10)
    assert life.gang.phase == "running"
    life.go_on(20)
    assert life.gang.phase == "stopping"
    cause = life.cause()
    assert (cause["kind"], cause["exit_code"]) == ("stuck", 124)
    assert cause["summary"] == (
        "stuck for 10 m: rank 3 never called all_reduce 6 ([64, 64] float32); ranks 0, 1, 2 wait in it"
    )
    assert cause["peers"].startswith("rank 3: load_batch (hang.py:24), reading /data/part-17; ranks 0")


def test_without_a_time_for_it_it_is_said_and_nothing_is_ended() -> None:
    life = Life(recorded("reads-4"), stall=None)
    life.go_on(SAID_AFTER - 10)
    assert events(life.gang) == []
    life.go_on(3 * SAID_AFTER)
    assert life.gang.phase == "running"
    (event,) = life.gang.events
    assert (event["kind"], event["trouble"]) == ("still", "stuck")
    assert str(event["reason"]).startswith("stuck for 10 m: rank 3 never called all_reduce 6 ")
    events(life.gang)
    life.printed = dict.fromkeys(life.looks, life.now)
    life.go_on(20)
    assert events(life.gang) == ["moving"]


def test_a_long_epoch_without_a_print_is_not_stuck() -> None:
    life = Life(copy.deepcopy(recorded("asleep-4")))

    def train() -> None:
        for look in life.looks.values():
            look["recorder"]["groups"]["0"]["called"] += 40
            look["recorder"]["groups"]["0"]["done"] += 40

    life.go_on(6 * STALL, train)
    assert life.gang.phase == "running"
    assert events(life.gang) == []


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("stall", [STALL, None])
def test_a_frame_that_stands_still_alone_is_only_reported(ranks: int, stall: float | None) -> None:
    life = Life({rank: dict(FIT) for rank in range(ranks)}, stall)
    life.go_on(3 * STALL)
    assert life.gang.phase == "running"
    (event,) = life.gang.events
    assert (event["kind"], event["trouble"]) == ("still", "quiet")
    assert str(event["reason"]).startswith("quiet for 10 m: rank")


def test_stacks_that_change_say_nothing() -> None:
    life = Life(without_recorder(recorded("asleep-4")))

    def train() -> None:
        life.looks[3]["trace"] += 1

    life.go_on(4 * STALL, train)
    assert life.gang.phase == "running"
    assert events(life.gang) == []


def test_without_a_recorder_by_stacks_that_stand_still() -> None:
    life = Life(without_recorder(recorded("asleep-4")))
    life.go_on(STALL + 10)
    assert "rank 3 is in wait_long" in life.cause()["summary"]


def test_a_rank_that_prints_does_not_hide_one_that_is_waited_for() -> None:
    life = Life(recorded("asleep-4"))

    def one_prints() -> None:
        life.printed[0] = life.now

    for _ in range(300):
        life.go_on(10)
        one_prints()
    assert life.gang.phase == "stopping"
    assert "rank 3 never called all_reduce 6" in life.cause()["summary"]
    assert not any(order["stacks"] for order in life.asked), "no signal is sent while ranks print"


def test_a_rank_that_prints_is_not_waited_for_in_vain() -> None:
    """As where rank 0 evaluates, with a progress bar, and the others are in a barrier."""
    life = Life(recorded("asleep-4"))
    for _ in range(300):
        life.go_on(10)
        life.printed[3] = life.now
    assert life.gang.phase == "running"
    assert events(life.gang) == []


def test_a_library_that_gives_up_first() -> None:
    """As torch's watchdog and Gloo do: the rank that fails has waited for another one."""
    life = Life(recorded("asleep-4"), stall=None)
    life.go_on(SAID_AFTER - 100)
    failure = end(1, -6, "RuntimeError: Timed out waiting 1800000ms for recv operation to complete")
    life.gang.failed(1, 0, failure, life.now)
    cause = life.cause()
    assert cause["summary"] == (
        "rank 3 never called all_reduce 6 ([64, 64] float32); ranks 0, 1, 2 wait in it; then "
        + failure["summary"]
    )
    assert cause["peers"].startswith("rank 3: wait_long (hang.py:18); ")
    assert cause["kind"] == "rank"


GAVE_UP = "RuntimeError: Timed out waiting 6000ms for recv operation to complete"
CAUGHT = "c10::DistBackendError: Watchdog caught collective operation timeout: ALLREDUCE 6, after 60 s"


def give_up(failure: dict[str, Any], looks: dict[int, dict[str, Any]], *left: int) -> dict[str, Any]:
    """The cause where a rank fails before the ranks were looked at; `left` are those that have told."""
    gang = running(len(looks))
    gang.failed(failure["rank"], 0, failure, NOW + 60)
    assert [order.get("stacks") for _, order in gang.outbox] == ["look"] * len(looks)
    for rank, look in looks.items():
        told = {str(rank): look} if rank in left else {}
        gang.stopped(rank, 0, NOW + 61, {}, {}, told)
    assert gang.verdict is not None
    cause = gang.verdict["cause"]
    assert isinstance(cause, dict)
    return cause


# BUG: "rank 1 was killed by SIGABRT", and nothing on the rank that it had waited for.
@pytest.mark.parametrize(("error", "code"), [(GAVE_UP, 1), (CAUGHT, -6)])
def test_a_library_that_gives_up_before_the_ranks_are_looked_at(error: str, code: int) -> None:
    """What the one that failed has left and what the others tell when they are stopped."""
    failure = end(1, code, error)
    cause = give_up(failure, recorded("asleep-4"), 0, 1, 2, 3)
    assert cause["summary"] == (
        "rank 3 never called all_reduce 6 ([64, 64] float32); ranks 0, 1, 2 wait in it; then "
        + failure["summary"]
    )
    assert cause["peers"] == "rank 3: wait_long (hang.py:18); ranks 0, 1, 2: all_reduce (hang.py:62)"
    assert (cause["kind"], cause["rank"]) == ("rank", 1)


def test_what_a_rank_has_not_left_is_not_known() -> None:
    cause = give_up(end(1, 1, GAVE_UP), recorded("asleep-4"), 0, 1, 2)
    assert cause["summary"].startswith("rank 3 did not answer, and may not have called all_reduce 6 ")


def test_a_rank_that_gives_up_is_the_cause_where_none_is_known_to_keep_it() -> None:
    failure = end(3, -6, CAUGHT)
    for left in ((), (0, 1, 2, 3)):
        assert give_up(failure, recorded("asleep-4"), *left)["summary"] == failure["summary"]


def test_who_is_waited_for_does_not_explain_an_error_of_one_s_own() -> None:
    gang = running(2)
    gang.failed(0, 0, end(0), NOW + 60)
    assert [order.get("stacks") for _, order in gang.outbox] == [None, None]
    looks = recorded("asleep-2")
    for rank in (0, 1):
        gang.stopped(rank, 0, NOW + 61, {}, {}, {str(rank): looks[rank]})
    assert gang.verdict is not None
    assert gang.verdict["cause"]["summary"] == "rank 0 exited with code 1: ValueError: boom"  # type: ignore[index]


@pytest.mark.parametrize("looks", [None, [], {"x": {}}, {"1": 3}, {"0": {}}, {"0": {"recorder": None}}])
def test_what_a_worker_says_of_its_ranks_that_is_none(looks: object) -> None:
    gang = running(1)
    gang.failed(0, 0, end(0, 1, GAVE_UP), NOW + 60)
    gang.stopped(0, 0, NOW + 61, {}, {}, looks)
    assert gang.verdict is not None
    assert GAVE_UP in gang.verdict["cause"]["summary"]  # type: ignore[index]


def test_a_rank_that_the_others_wait_for_may_fail_by_itself() -> None:
    life = Life(recorded("asleep-4"), stall=None)
    life.go_on(SAID_AFTER - 100)
    life.gang.failed(3, 0, end(3), life.now)
    assert life.cause()["summary"] == "rank 3 exited with code 1: ValueError: boom"


def test_agents_that_stood_still_themselves_begin_anew() -> None:
    """A suspended laptop or cluster: `silent` begins at 0, as `quiet.py` counts."""
    life = Life(recorded("asleep-4"))
    for _ in range(5):
        life.go_on(STALL - 50)
        life.printed = dict.fromkeys(life.looks, life.now)
    assert life.gang.phase == "running"


@pytest.mark.parametrize("stall", [STALL, None])
def test_a_gang_that_was_frozen_with_its_agents_is_not_stuck(stall: float | None) -> None:
    """The cgroups of a cluster, or SIGSTOP to all: clocks go on, and what waited goes on to wait. Rank 3
    evaluates for eight minutes, and the others wait for it; in between all stand still for an hour.
    """
    looks = recorded("asleep-4")
    gang = running(len(looks), **({} if stall is None else {"stall": stall}))
    now, counters = NOW, {rank: Quiet(NOW) for rank in looks}

    def go_on(until: float) -> None:
        nonlocal now
        while now < until and gang.phase == "running":
            now += 10.0
            for rank, quiet in counters.items():
                idle = quiet.note(now, 10.0, busy=rank == 3, printed=NOW)
                silent = quiet.silent(now, NOW)
                sample = {"idle": idle, "silent": silent, "ranks": [{"rank": rank, "silent": silent}]}
                gang.sampled(rank, sample, now)
            for worker, order in [message for message in gang.outbox if message[1]["say"] == "look"]:
                assert worker is not None
                gang.looked(worker, 0, order["number"], {str(worker): looks[worker]}, now)
            gang.outbox.clear()

    go_on(NOW + 320)
    now += 3600
    go_on(now + 160)
    assert gang.phase == "running"
    assert events(gang) == []
    go_on(now + 700)
    said_or_done = [event["kind"] for event in gang.events]
    assert said_or_done == (["note"] if stall else ["still"]), "from then on it counts again"


DEBUGGED = {"place": "readline (train.py:9)", "collective": False, "state": "S", "trace": 3, "debugged": True}


# BUG: it was called stuck, and ended with --stall.
@pytest.mark.parametrize("look", [DEBUGGED, {"state": "t"}])
@pytest.mark.parametrize("idle", [0.0, STALL])
def test_a_rank_in_a_debugger_is_waited_for(look: dict[str, Any], idle: float) -> None:
    life = Life(recorded("asleep-4"))
    life.looks[3] = {"recorder": life.looks[3]["recorder"], **look}
    life.go_on(STALL - 20)
    life.idle = idle
    life.go_on(3 * STALL)
    assert life.gang.phase == "running"
    (event,) = life.gang.events
    assert (event["kind"], event["trouble"]) == ("still", "quiet")


@pytest.mark.parametrize(
    ("looks", "more"),
    [
        ({rank: dict(FIT, place="sleep (train.py:3)") for rank in range(2)}, ""),
        (
            recorded("asleep-2"),
            "; rank 1 never called all_reduce 6 ([64, 64] float32); rank 0 waits in it",
        ),
    ],
)
def test_idle_ranks_are_ended_as_before_and_who_is_waited_for_is_named(
    looks: dict[int, dict[str, Any]], more: str
) -> None:
    life = Life(looks)
    life.go_on(STALL - 20)
    life.idle = STALL
    life.go_on(10)
    assert life.cause()["summary"] == (
        "the run was stuck: no rank printed or computed for 600 s (--stall)" + more
    )


def test_what_was_seen_before_counts_while_a_look_goes_on() -> None:
    """Of two workers one has answered when the time is over."""
    life = Life(recorded("asleep-2"))
    life.go_on(STALL - 20)
    made = life.gang
    silent = {"silent": STALL, "ranks": [], "idle": STALL - 1}
    made.sampled(0, silent, life.now + 200)
    assert [message["say"] for _, message in made.outbox] == ["look", "look"]
    made.looked(0, 0, made.outbox[0][1]["number"], {"0": {"state": "S"}}, life.now + 200)
    for worker in (0, 1):
        made.sampled(worker, dict(silent, idle=STALL), life.now + 201)
    assert "rank 1 never called" in life.cause()["summary"]


def test_a_worker_that_does_not_answer_is_not_waited_for() -> None:
    made = running(2)
    for now in range(0, 2000, 5):
        for worker in (0, 1):
            made.sampled(worker, {"silent": float(now), "ranks": []}, NOW + now)
        for asked, order in made.outbox:
            if asked == 0:
                looks = recorded("asleep-2")
                del looks[1]
                made.looked(0, 0, order["number"], {"0": looks[0]}, NOW + now)
        said(made)
    assert events(made) == ["still"]


@pytest.mark.parametrize("answer", [None, [], {"x": {}}, {"0": 3}])
def test_an_answer_that_is_none(answer: object) -> None:
    made = running(1)
    for now in (0.0, 300.0, 450.0, 600.0, 750.0):
        made.sampled(0, {"silent": now}, NOW + now)
        for _, order in made.outbox:
            made.looked(0, 0, order["number"], answer, NOW + now)
        said(made)
    assert events(made) == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(6.54, "6.5 s"), (45.2, "45 s"), (600.0, "10 m"), (7500.0, "2 h 5 m")]
)
def test_times_in_words(seconds: float, text: str) -> None:
    assert lasting(seconds) == text
