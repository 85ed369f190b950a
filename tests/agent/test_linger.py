"""The time that a worker keeps its results: what makes it pass, and what makes it begin again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echelon.agent.linger import AFTER_OUTAGE, LONGEST_AWAY, Linger

STEPS = st.lists(st.tuples(st.floats(0.1, 20.0), st.booleans(), st.booleans()), max_size=60)


@given(STEPS)
def test_nothing_is_given_up_before_the_time_has_passed_without_a_client(
    steps: list[tuple[float, bool, bool]],
) -> None:
    """Seconds, whether files are copied, whether the API server can be reached."""
    linger, now = Linger(30.0), 0.0
    linger.pass_time(now, busy=False, reachable=True)
    alone = away = 0.0
    for seconds, busy, reachable in steps:
        now += seconds
        linger.pass_time(now, busy=busy, reachable=reachable)
        if busy:
            alone = away = 0.0
        elif reachable:
            alone += seconds
        else:
            away += seconds
        if alone + away < 30.0:
            assert not linger.over
        if linger.over:
            assert alone >= 30.0 or away >= LONGEST_AWAY * 30.0
            return


def test_without_the_api_server_it_ends_after_all() -> None:
    linger = Linger(2.0)
    for second in range(40):
        linger.pass_time(float(second), busy=False, reachable=False)
    assert linger.over


def test_a_client_that_fetches_and_does_not_come_again_is_given_up() -> None:
    linger = Linger(2.0)
    linger.attend("a", 60.0, 0.0)
    linger.pass_time(59.0, busy=False, reachable=True)
    assert linger.is_attended(59.0)
    assert linger.left == 2.0
    assert not linger.is_attended(61.0)
    linger.pass_time(61.0, busy=False, reachable=True)
    assert linger.over
    linger.attend("a", 1e9, 0.0)
    assert not linger.is_attended(1e6), "for no longer than minutes at a time"


def test_it_begins_again_when_the_api_server_is_back() -> None:
    linger = Linger(10.0)
    for now, reachable in ((0.0, True), (8.0, True), (30.0, False), (31.0, True)):
        linger.pass_time(now, busy=False, reachable=reachable)
    assert linger.left == AFTER_OUTAGE, "though less was asked for"
    linger.pass_time(31.0 + AFTER_OUTAGE - 1, busy=False, reachable=True)
    assert not linger.over
    longer = Linger(100.0)
    for now, reachable in ((0.0, True), (8.0, True), (30.0, False), (31.0, True)):
        longer.pass_time(now, busy=False, reachable=reachable)
    assert longer.left == 100.0
