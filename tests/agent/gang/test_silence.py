"""Who stood still: a process that was stopped itself has nothing to say about the silence of others."""

from __future__ import annotations

from tests.agent.gangs import NOW, gang, said

from echelon.agent.gang.silence import OwnTicks


def test_ticks_that_come_in_time_are_no_gap() -> None:
    ticks = OwnTicks(1.0, NOW)
    assert [ticks.stood_still(NOW + at) for at in (1.0, 2.1, 4.5)] == [0.0, 0.0, 0.0]


def test_a_gap_is_told_once_with_its_length() -> None:
    ticks = OwnTicks(1.0, NOW)
    assert [ticks.stood_still(NOW + at) for at in (1.0, 61.0, 62.0)] == [0.0, 60.0, 0.0]


def test_workers_that_were_waited_for_are_waited_for_longer() -> None:
    waiting = gang(2, join_timeout=60.0)
    waiting.joined(0, "10.0.0.0", -1, NOW)
    waiting.postpone(3600.0)
    waiting.tick(NOW + 3600.0)
    assert waiting.verdict is None
    assert waiting.next_deadline() == NOW + 3660.0
    waiting.tick(NOW + 3660.0)
    assert waiting.verdict is not None


def test_the_time_limit_of_a_run_is_not_postponed() -> None:
    """It is a limit on what a run may cost, and a machine that was suspended is paid for."""
    limited = gang(1, timeout=100.0)
    limited.joined(0, "10.0.0.0", -1, NOW)
    limited.ready(0, 0, [], NOW)
    assert said(limited) == [(None, "prepare"), (None, "start")]
    limited.postpone(3600.0)
    assert limited.next_deadline() == NOW + 100.0
