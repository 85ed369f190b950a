"""When a worker counts as doing nothing, and how often it is looked at: without processes or clocks."""

from __future__ import annotations

import pytest

from echelon.agent.ranks.usage.quiet import BUSY, COMPUTES, EVERY, GAP, Quiet, computes, pause, pause_for_gpus


@pytest.mark.parametrize(
    ("cpus", "gpus", "expected"),
    [
        ([], [], False),
        ([0.0, COMPUTES / 2], [], False),
        ([0.0, COMPUTES], [], True),
        ([0.0], [0, BUSY - 1], False),
        ([0.0], [0, BUSY], True),
        ([0.0], [None], False),
    ],
)
def test_who_computes(cpus: list[float], gpus: list[int | None], expected: bool) -> None:
    assert computes(cpus, gpus) is expected


def test_quiet_is_counted_from_the_last_deed() -> None:
    quiet = Quiet(100.0)
    assert quiet.note(103.0, 3.0, busy=False, printed=0.0) == 3.0
    assert quiet.note(106.0, 3.0, busy=False, printed=0.0) == 6.0
    assert quiet.note(109.0, 3.0, busy=True, printed=0.0) == 0.0
    assert quiet.note(112.0, 3.0, busy=False, printed=0.0) == 3.0
    assert quiet.note(115.0, 3.0, busy=False, printed=114.0) == 1.0


def test_who_stood_still_itself_has_missed_nothing() -> None:
    """A suspended laptop, a frozen container."""
    quiet = Quiet(100.0)
    assert quiet.note(103.0, 3.0, busy=False, printed=0.0) == 3.0
    assert quiet.note(103.0 + GAP * 3.0 + 1, 3.0, busy=False, printed=0.0) == 0.0
    assert quiet.note(3600.0, 3.0, busy=False, printed=0.0) == 0.0
    assert quiet.note(3603.0, 3.0, busy=False, printed=0.0) == 3.0, "from then on it counts again"


def test_silence_is_counted_from_the_last_print_whoever_computes() -> None:
    quiet = Quiet(100.0)
    quiet.note(103.0, 3.0, busy=True, printed=0.0)
    assert quiet.silent(103.0, printed=0.0) == 3.0
    assert quiet.silent(103.0, printed=102.0) == 1.0
    quiet.note(103.0 + GAP * 3.0 + 1, 3.0, busy=False, printed=0.0)
    assert quiet.silent(103.0 + GAP * 3.0 + 1, printed=0.0) == 0.0, "the agent stood still itself"


def test_a_rank_that_waits_for_keys_is_neither_idle_nor_silent() -> None:
    """As in a debugger."""
    quiet = Quiet(100.0)
    assert quiet.note(103.0, 3.0, busy=False, printed=0.0, waits_for_keys=True) == 0.0
    assert quiet.silent(103.0, printed=0.0) == 0.0
    assert quiet.note(106.0, 3.0, busy=False, printed=0.0) == 3.0


def test_a_look_that_is_late_is_no_gap() -> None:
    quiet = Quiet(100.0)
    assert quiet.note(100.0 + GAP * 3.0, 3.0, busy=False, printed=0.0) == GAP * 3.0


def test_looks_cost_a_fraction_of_a_per_cent() -> None:
    for cost in (0.0, 0.001, 0.02, 1.0):
        assert pause(None, cost) >= max(EVERY, 200 * cost)


def test_a_stall_is_noticed_in_time() -> None:
    for stall in (1.0, 10.0, 600.0):
        assert pause(stall, 1.0) <= max(stall / 4, EVERY)
        assert pause_for_gpus(stall) <= max(stall / 4, 0.1)
    assert pause(600.0, 0.001) == EVERY
