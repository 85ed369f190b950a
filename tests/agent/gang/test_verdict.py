"""Which of many failures was the cause, and how a run's end is told."""

from __future__ import annotations

import pytest

from echelon.agent.gang.verdict import (
    LOST,
    LOST_EXIT_CODE,
    OUTCOMES,
    cause_of_absence,
    choose_cause,
    describe_peers,
    find_cause,
    make_verdict,
)
from echelon.agent.ranks.report import make_end, make_hosted, make_launchers

FOLLOWED = make_end(0, 0, 1, "Connection reset by peer", [], 0.0)
FAILED = make_end(2, 1, -9, None, ["x"], 0.0)


def test_the_cause_is_the_first_that_is_no_consequence() -> None:
    ends = [
        FOLLOWED,
        FAILED,
        make_end(3, 1, 1, "ValueError: late", [], 0.0),
    ]
    cause = choose_cause(ends)
    assert cause["rank"] == 2
    assert [(other["rank"], other["consequence"]) for other in cause["others"]] == [(0, True), (3, False)]


def test_a_lost_worker_explains_those_that_followed_but_not_a_failure_of_their_own() -> None:
    lost = [(3, "it left", LOST), (4, "so did it", LOST)]
    assert find_cause([FOLLOWED, FAILED], lost)["rank"] == 2
    cause = find_cause([FOLLOWED], lost)
    assert (cause["summary"], cause["worker"], cause["exit_code"]) == (
        "worker 3 was lost: it left",
        3,
        LOST_EXIT_CODE,
    )
    assert [other["rank"] for other in cause["others"]] == [0]
    assert find_cause([FOLLOWED], [])["rank"] == 0
    assert find_cause([], [])["summary"] == "worker 0 was lost: it left"


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        ([7], "worker 7"),
        ([1, 2], "workers 1, 2"),
        (list(range(10)), "workers 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
    ],
)
def test_who_was_waited_for(missing: list[int], names: str) -> None:
    cause = cause_of_absence(missing, "never arrived", 60.0)
    assert (cause["summary"], cause["worker"]) == (f"{names} never arrived within 60 s", missing[0])


def test_exit_codes_of_verdicts() -> None:
    codes = [
        make_verdict(outcome, None, {"exit_code": 7} if outcome == "failed" else None)["exit_code"]
        for outcome in OUTCOMES
    ]
    assert codes == [0, 7, 143, 118]


def test_how_the_peers_stood() -> None:
    assert describe_peers({}, [0, 1], {}) == ""
    assert describe_peers({1: 12.3}, [], {}) == "rank 1 had exited 0 after 12 s"
    assert describe_peers({1: 12.3}, [0, 2], {"0": "f (x.py:1)"}) == (
        "rank 1 had exited 0 after 12 s; ranks 0, 2 were still running; rank 0 was in f (x.py:1)"
    )
    assert describe_peers({3: 9.0, 1: 12.0}, [0], {}) == (
        "ranks 1, 3 had exited 0, the first after 9 s; rank 0 was still running"
    )


def test_of_a_launchers_ranks_one_that_was_ended_without_a_word_comes_last() -> None:
    ended, aborted = make_end(0, 0, -9, None, [], 0.0), make_end(2, 1, -9, "Abort(7)", [], 0.0)
    make_hosted(ended, b"", cut_off=True)
    make_hosted(aborted, b"", cut_off=True)
    assert choose_cause([ended, aborted])["rank"] == 2


def test_a_launcher_that_fails_alone_is_the_cause_and_is_no_rank_among_others() -> None:
    launcher = make_end(0, 0, 1, "no such host", [], 0.0)
    make_launchers(launcher, 1, apart=True)
    alone = choose_cause([launcher])
    assert (alone["kind"], alone["rank"]) == ("launcher", None)
    assert choose_cause([launcher, FAILED])["others"] == []
