"""The time for which results are kept: what makes it begin anew, and when a worker may leave."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.agent.hold import LONGEST, Hold, may_leave

CONTACTS = st.lists(
    st.tuples(st.floats(0.1, 40.0), st.sampled_from(("", "ann", "bob")), st.sampled_from((0.0, 5.0, 60.0))),
    max_size=40,
)


@given(CONTACTS, st.booleans())
def test_it_is_over_when_the_last_contact_is_long_ago_and_nobody_is_at_work(
    contacts: list[tuple[float, str, float]], released: bool
) -> None:
    """`ann` has released; `bob` is waited for as long as he has asked for."""
    hold, now, last = Hold(30.0, 0.0), 0.0, 0.0
    at_work: dict[str, float] = {}
    for seconds, client, asked in contacts:
        now += seconds
        hold.renew(now, client, asked)
        last = now
        at_work[client] = now + asked
    if released:
        hold.release("ann")
        at_work.pop("ann", None)
    end = max([0.0 if released else last + 30.0, *(each for each in at_work.values() if each > now)])
    assert hold.until == end
    assert hold.is_over(end)
    assert end == 0.0 or not hold.is_over(end - 0.001)


def test_a_client_that_does_not_come_again_is_given_up() -> None:
    hold = Hold(2.0, 0.0)
    hold.renew(0.0, "ann", 1e9)
    assert hold.until == LONGEST
    hold.renew(1.0, "ann", 0.0)
    assert hold.until == 3.0, "she says that she is done"


def test_a_client_that_has_released_asks_for_no_more_time() -> None:
    """What it said before may arrive after that."""
    hold = Hold(30.0, 0.0)
    hold.renew(1.0, "bob", 60.0)
    hold.release("ann")
    hold.renew(2.0, "ann", 60.0)
    hold.renew(2.0)
    assert hold.until == 61.0
    hold.release("bob")
    assert hold.is_over(2.0)


NAMES = ("over", "busy", "kept", "leads", "has_members", "is_led")
# What must be so of a worker that may leave, and what must not.
MAY = [
    ({"over"}, {"busy", "leads"}),
    ({"over", "leads"}, {"busy", "has_members"}),
    ({"kept", "is_led"}, {"leads"}),
    ({"kept", "leads"}, {"has_members"}),
]


@pytest.mark.core
@pytest.mark.parametrize("values", list(itertools.product((True, False), repeat=len(NAMES))))
def test_who_may_leave(values: tuple[bool, ...]) -> None:
    given = dict(zip(NAMES, values, strict=True))
    true = {name for name, value in given.items() if value}
    assert may_leave(**given) == any(must <= true and not true & without for must, without in MAY)
