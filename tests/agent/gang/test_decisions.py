"""The leader's decisions, without sockets or clocks: every way a run can go."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.gangs import NOW, UNFIT, end, events, gang, running, said, stop_all
from tests.properties import examples

from echelon.agent.gang.decisions import MOST_MISSING, REUNION, Gang
from echelon.agent.gang.generation import MOST_SPARED
from echelon.agent.gang.verdict import LEFT
from echelon.agent.gang.wire import encode


def test_everybody_is_waited_for_and_told_the_addresses() -> None:
    made = gang(3, wiring={"TF_CONFIG": "{members:worker}"})
    made.joined(2, "c", -1, NOW)
    made.joined(0, "a", -1, NOW)
    assert said(made) == []
    made.joined(1, "b", -1, NOW)
    assert said(made) == [(None, "prepare")]
    for worker in (1, 2, 0):
        made.ready(worker, 0, [worker], NOW)
    ((receiver, message),) = made.outbox
    assert receiver is None
    assert message == {
        "say": "start",
        "generation": 0,
        "addresses": ["a", "b", "c"],
        "ports": [[0], [1], [2]],
        "elapsed": 0.0,
        "spared": 0,
    }


def started(workers: int, addresses: list[str], wiring: dict[str, str]) -> list[tuple[int | None, Any]]:
    made = gang(workers, wiring=wiring)
    for worker, address in enumerate(addresses):
        made.joined(worker, address, -1, NOW)
    said(made)
    for worker in range(workers):
        made.ready(worker, 0, [worker], NOW)
    return made.outbox


def test_everybody_is_told_only_what_the_launch_names() -> None:
    ((receiver, message),) = started(3, ["a", "b", "c"], {"MASTER": "{address:1}:{port:1}"})
    assert receiver is None
    assert (message["addresses"], message["ports"]) == ({"1": "b"}, {"1": [1]})


def test_each_is_told_its_place_on_its_machine() -> None:
    orders = started(3, ["a", "b", "a"], {"LOCAL_RANK": "{rank_here:3}", "GROUP_RANK": "{machine:3}"})
    assert [(receiver, message["own"]) for receiver, message in orders] == [
        (0, {"3": [0, 0, 2]}), (1, {"3": [1, 0, 1]}), (2, {"3": [0, 1, 2]}),
    ]  # fmt: skip


def test_the_order_to_start_does_not_grow_with_the_gang() -> None:
    wiring = {"MASTER_ADDR": "{address:0}", "MASTER_PORT": "{port:0}", "LOCAL_RANK": "{rank_here:9}"}
    for workers in (10, 1000):
        addresses = [f"10.0.{worker // 250}.{worker % 250}" for worker in range(workers)]
        orders = started(workers, addresses, wiring)
        assert len(orders) == workers
        assert max(len(encode(message)) for _, message in orders) < 200


def test_success() -> None:
    made = running()
    made.done(1, 0, NOW)
    assert made.verdict is None
    made.done(0, 0, NOW)
    assert made.verdict == {"outcome": "succeeded", "exit_code": 0, "reason": None, "cause": None}
    assert said(made) == [(None, "finish")]


def test_parameter_servers_end_when_the_workers_have() -> None:
    made = running(3, essential={0, 1})
    made.done(0, 0, NOW)
    made.done(1, 0, NOW)
    assert said(made) == [(2, "stop")]
    made.failed(2, 0, end(2), NOW)  # it falls over on the way out: nobody minds
    made.stopped(2, 0, NOW)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "succeeded"


def test_a_parameter_server_that_fails_early_fails_the_run() -> None:
    made = running(2, essential={0})
    made.failed(1, 0, end(1), NOW)
    stop_all(made, 0, 1)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "failed"


def test_a_parameter_server_that_falls_while_the_workers_end_well_decides_nothing() -> None:
    made = running(2, essential={0})
    made.failed(1, 0, end(1, 1, "Connection reset by peer"), NOW)
    made.done(0, 0, NOW + 0.5)
    made.stopped(1, 0, NOW + 0.6)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "succeeded"


def test_a_failure_stops_the_others_and_names_the_rank() -> None:
    made = running(3)
    made.failed(1, 0, end(1, 3), NOW)
    assert said(made) == [(0, "stop"), (1, "stop"), (2, "stop")]
    stop_all(made, 0, 1, 2)
    assert made.verdict is not None
    assert made.verdict["exit_code"] == 3
    assert made.verdict["cause"]["rank"] == 1  # type: ignore[index]
    assert events(made) == ["failed"]


def test_a_consequence_heard_first_does_not_hide_the_cause() -> None:
    made = running(3)
    made.failed(0, 0, end(0, 1, "RuntimeError: Connection reset by peer"), NOW)
    assert said(made) == []  # wait a moment for the one who broke it
    made.failed(2, 0, end(2, -9, None), NOW + 0.2)
    assert len(said(made)) == 3
    stop_all(made, 0, 1, 2)
    cause: Any = made.verdict and made.verdict["cause"]
    assert (cause["rank"], cause["signal"], cause["exit_code"]) == (2, "SIGKILL", 137)
    assert [(other["rank"], other["consequence"]) for other in cause["others"]] == [(0, True)]


def test_a_consequence_alone_is_the_cause_after_a_while() -> None:
    made = running(2)
    made.failed(0, 0, end(0, 1, "Connection reset by peer"), NOW)
    deadline = made.next_deadline()
    assert deadline is not None
    made.tick(deadline)
    stop_all(made, 0, 1)
    assert made.verdict is not None
    assert made.verdict["cause"]["rank"] == 0  # type: ignore[index]


def test_restart_until_none_is_left() -> None:
    made = running(2, restarts=1)
    made.failed(0, 0, end(0), NOW)
    stop_all(made, 0, 1)
    assert made.verdict is None
    assert (made.phase, made.generation) == ("preparing", 1)
    assert events(made) == ["failed", "restarting"]
    for worker in (0, 1):
        made.ready(worker, 1, [1], NOW)
    made.failed(1, 1, end(1, 7), NOW)
    stop_all(made, 0, 1)
    assert made.verdict is not None
    assert made.verdict["exit_code"] == 7


def test_a_lost_worker_is_waited_for_when_restarts_are_left() -> None:
    made = running(2, restarts=2)
    made.lost(1, "gone", NOW)
    made.stopped(0, 0, NOW)
    assert made.phase == "gathering"
    made.joined(1, "new", -1, NOW)
    assert (made.phase, made.generation) == ("preparing", 1)


def test_a_lost_worker_that_nothing_replaces_ends_the_run() -> None:
    made = running(2, restarts=2, replaced=False)
    made.lost(1, "gone", NOW)
    made.stopped(0, 0, NOW)
    assert made.verdict is not None
    assert made.verdict["cause"]["summary"] == "worker 1 was lost: gone"  # type: ignore[index]


def test_where_nothing_replaces_lost_workers_ranks_and_workers_that_are_told_to_leave_start_again() -> None:
    made = running(2, restarts=2, replaced=False)
    made.failed(0, 0, end(0), NOW)
    stop_all(made, 0, 1)
    assert (made.phase, made.generation) == ("preparing", 1)
    left = running(2, restarts=2, replaced=False)
    left.lost(1, "told to leave", NOW, LEFT)
    left.stopped(0, 0, NOW)
    assert left.phase == "gathering"


def test_a_lost_worker_ends_a_run_without_restarts_and_peers_are_consequences() -> None:
    made = running(2)
    made.failed(0, 0, end(0, 1, "Connection closed by peer"), NOW)
    made.lost(1, "its agent is gone", NOW)
    made.stopped(0, 0, NOW)
    cause: Any = made.verdict and made.verdict["cause"]
    assert cause["summary"] == "worker 1 was lost: its agent is gone"
    assert cause["exit_code"] == 117
    assert cause["others"][0]["consequence"]


def test_a_leader_that_comes_back_learns_the_generation() -> None:
    made = gang(2, restarts=3)
    made.joined(0, "a", 0, NOW)
    made.joined(1, "b", 1, NOW)
    assert made.generation == 2


def test_a_leader_that_comes_back_too_often_ends_the_run() -> None:
    made = gang(2, restarts=1)
    made.joined(0, "a", 0, NOW)
    made.joined(1, "b", 1, NOW)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "failed"
    assert made.verdict["cause"]["worker"] == 0  # type: ignore[index]


def test_workers_that_never_arrive_are_named() -> None:
    made = gang(12, join_timeout=30)
    made.joined(0, "a", -1, NOW)
    made.joined(5, "b", -1, NOW)
    made.tick(NOW + 30)
    assert made.verdict is not None
    summary = made.verdict["cause"]["summary"]  # type: ignore[index]
    assert summary == "workers 1, 2, 3, 4, 6, 7, 8, 9 and 2 more never arrived within 30 s"


def test_time_limit() -> None:
    made = running(2, timeout=5)
    made.tick(NOW + 5)
    assert [word for _, word in said(made)] == ["stop", "stop"]
    stop_all(made, 0, 1)
    assert made.verdict is not None
    assert (made.verdict["outcome"], made.verdict["exit_code"]) == ("timed-out", 118)


def test_a_worker_that_does_not_stop_is_sent_away() -> None:
    made = running(2, grace=1)
    made.stop_requested("stopped", "enough", NOW)
    made.stopped(0, 0, NOW)
    deadline = made.next_deadline()
    assert deadline is not None
    made.tick(deadline)
    assert (1, "leave") in said(made)
    assert made.verdict is not None
    assert (made.verdict["outcome"], made.verdict["reason"]) == ("stopped", "enough")


def test_stop_while_gathering() -> None:
    made = gang(2)
    made.joined(0, "a", -1, NOW)
    made.stop_requested("stopped", "enough", NOW)
    assert made.verdict is not None


WORDS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "joined",
                "ready",
                "failed",
                "consequence",
                "done",
                "stopped",
                "lost",
                "unfit",
                "adopt",
                "stop",
                "stop-now",
                "tick",
            ]
        ),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=60,
)


@settings(max_examples=examples(400), deadline=None)
@given(words=WORDS, restarts=st.integers(0, 2))
def test_whatever_is_heard_the_gang_stays_sane_and_can_be_ended(
    words: list[tuple[str, int, int]], restarts: int
) -> None:
    made = gang(3, restarts=restarts, essential={0, 1})
    now = NOW
    for word, worker, generation in words:
        now += 0.5
        over = made.phase == "over"
        verdict = made.verdict
        match word:
            case "joined":
                made.joined(worker, "x", generation - 1, now, elapsed=now if generation else None)
            case "ready":
                made.ready(worker, generation, [1], now)
            case "failed":
                made.failed(worker, generation, end(worker), now)
            case "consequence":
                made.failed(worker, generation, end(worker, 1, "broken pipe"), now)
            case "done":
                made.done(worker, generation, now)
            case "stopped":
                made.stopped(worker, generation, now)
            case "lost":
                made.lost(worker, "gone", now)
            case "unfit":
                made.unfit(UNFIT, now)
            case "adopt":
                made.adopt({"outcome": "succeeded"})
            case "stop":
                made.stop_requested("stopped", "enough", now)
            case "stop-now":
                made.stop_requested("stopped", "enough", now, signal="SIGKILL")
            case "tick":
                made.tick(now + generation * 20)
        assert made.generation <= restarts or made.phase == "over"
        if over:
            assert made.verdict is verdict  # what is decided stays decided
    made.stop_requested("stopped", "enough", now)
    for _ in range(5):
        deadline = made.next_deadline()
        if deadline is None:
            break
        made.tick(deadline)
    assert made.phase == "over"
    assert made.verdict is not None


def test_a_leader_that_comes_back_too_late_waits_for_those_that_hold_results() -> None:
    """They know the verdict; a leader that left at once would end their pods."""
    made = gang(3, restarts=0, hold=300.0)
    made.joined(0, "a", 0, NOW)
    made.joined(1, "b", 0, NOW + 5, 10.0)
    assert made.phase == "gathering"
    assert made.next_deadline() == NOW + REUNION
    known = {"outcome": "failed", "exit_code": 117, "reason": None, "cause": None}
    made.adopt(known)
    assert made.verdict == known
    assert made.has_run


def test_a_leader_that_comes_back_too_late_does_not_wait_for_ever() -> None:
    made = gang(2, restarts=0, hold=300.0)
    made.joined(0, "a", 0, NOW)
    made.tick(NOW + REUNION)
    assert made.verdict is not None
    assert made.verdict["cause"]["worker"] == 0  # type: ignore[index]


def run_again(made: Gang) -> None:
    """Bring a gang that is preparing to its next generation."""
    generation = made.generation
    for worker in range(2):
        made.ready(worker, generation, [1], NOW)
    assert (made.phase, made.last_started) == ("running", generation)


def evict(made: Gang, worker: int = 1) -> None:
    """Worker 1 is told to leave, and another comes in its place."""
    made.lost(worker, "told to leave", NOW, LEFT)
    made.stopped(1 - worker, made.generation, NOW)
    if made.verdict is None:
        made.joined(worker, "new", -1, NOW)


def test_a_worker_that_is_told_to_leave_costs_no_restart() -> None:
    made = running(2, restarts=1)
    for number in (1, 2, 3):
        evict(made)
        assert (made.phase, made.generation, made.spared) == ("preparing", number, number)
        restarting = [each for each in made.events if each["kind"] == "restarting"]
        assert (restarting[-1]["restart"], restarting[-1]["spared"]) == (number, number)
        assert (None, "spared") in said(made)
        run_again(made)
    made.failed(0, 3, end(0), NOW)  # what fails by itself counts as ever
    stop_all(made, 0, 1)
    assert (made.phase, made.generation) == ("preparing", 4)
    run_again(made)
    made.failed(0, 4, end(0), NOW)
    stop_all(made, 0, 1)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "failed"


def test_a_run_without_restarts_ends_with_a_worker_that_is_told_to_leave() -> None:
    made = running(2, restarts=0)
    evict(made)
    assert made.verdict is not None
    assert made.verdict["cause"]["kind"] == LEFT  # type: ignore[index]


def test_a_worker_that_is_lost_counts() -> None:
    made = running(2, restarts=1)
    made.lost(1, "gone", NOW)
    made.stopped(0, 0, NOW)
    assert made.spared == 0


def test_evictions_without_end_end_the_run() -> None:
    made = running(2, restarts=2)
    for _ in range(MOST_SPARED + 2):
        evict(made)
        run_again(made)
    assert made.spared == MOST_SPARED
    evict(made)
    assert made.verdict is not None
    assert made.verdict["outcome"] == "failed"


def test_a_leader_that_replaces_one_that_was_told_to_leave_learns_what_counts() -> None:
    """From the others, which were told; or, where it is the only worker, from what its cluster counted."""
    made = gang(2, restarts=1)
    made.joined(0, "a", 2, NOW)
    made.joined(1, "b", 3, NOW, 5.0, spared=3)
    assert (made.phase, made.generation, made.spared) == ("preparing", 4, 3)
    alone = gang(1, restarts=1)
    alone.joined(0, "a", 4, NOW, spared=4)
    assert (alone.phase, alone.generation) == ("preparing", 5)
    counted = gang(1, restarts=1)
    counted.joined(0, "a", 4, NOW, spared=3)
    assert counted.verdict is not None
    never = gang(1, restarts=0)
    never.joined(0, "a", 0, NOW, spared=1)
    assert never.verdict is not None


def test_output_that_lacks_lines_is_in_the_verdict_and_warned_of_once() -> None:
    made = running()

    def note(worker: int | None, what: str) -> dict[str, object]:
        return made.lacking({"worker": worker, "missing": [what], "reason": f"{what}; the run goes on"})

    first = note(1, "the log of rank 1 lacks lines")
    assert first == {
        "worker": 1,
        "missing": ["worker 1: the log of rank 1 lacks lines"],
        "reason": "worker 1: the log of rank 1 lacks lines; the run goes on",
    }
    assert note(None, "the log of rank 0 lacks lines")["reason"] is None
    note(1, "the log of rank 1 lacks lines")
    for rank in range(2, 60):
        note(0, f"the log of rank {rank} lacks lines")
    for worker in (0, 1):
        made.done(worker, 0, NOW)
    assert made.verdict is not None
    missing = made.verdict["missing"]
    assert isinstance(missing, list)
    assert missing[:2] == [
        "worker 1: the log of rank 1 lacks lines",
        "worker 0: the log of rank 0 lacks lines",
    ]
    assert (len(missing), missing[-1]) == (MOST_MISSING + 1, "the output of 20 more")


def waiting(restarts: int = 0) -> Gang:
    """A gang with checkpoints, whose second worker has failed for good."""
    made = running(restarts=restarts)
    made.waits = True
    made.failed(1, 0, end(1), NOW)
    stop_all(made, 0, 1)
    return made


def test_the_end_of_a_run_that_failed_waits_for_its_checkpoints() -> None:
    made = waiting()
    assert (made.phase, made.verdict, made.held, made.ends) == ("ending", None, True, True)
    assert made.next_deadline() is None
    made.unfit(UNFIT, NOW)
    made.lost(1, "it is gone", NOW)
    made.stop_requested("stopped", "stopped", NOW)
    assert made.verdict is None
    said(made)
    made.proceed(NOW)
    assert made.verdict is not None
    assert (made.verdict["outcome"], made.verdict["reason"]) == ("failed", None)
    assert said(made) == [(None, "finish")]
    assert not made.held


def test_a_stop_that_does_not_wait_ends_it_at_once() -> None:
    made = waiting()
    made.stop_requested("stopped", "stopped", NOW, "SIGKILL")
    assert made.verdict is not None
    assert made.verdict["outcome"] == "failed"


def test_a_verdict_of_an_earlier_leader_counts_while_the_end_waits() -> None:
    made = waiting()
    said(made)
    made.adopt({"outcome": "stopped", "exit_code": 1})
    made.proceed(NOW)
    assert made.verdict == {"outcome": "stopped", "exit_code": 1}
    assert said(made) == [(None, "finish")]


def test_a_run_that_succeeds_ends_at_once() -> None:
    made = running()
    made.waits = True
    for worker in (0, 1):
        made.done(worker, 0, NOW)
    assert made.verdict is not None
