"""Which of many failures was the cause, and how a run's end is told."""

from __future__ import annotations

import pytest

from echelon.agent.gang.verdict import (
    LOST,
    LOST_EXIT_CODE,
    OUTCOMES,
    cause_of_absence,
    choose_cause,
    find_cause,
    make_verdict,
)
from echelon.agent.ranks.report import make_end

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
