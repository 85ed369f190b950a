"""The agent's event loop: what is forgotten or closed in the middle of a round is not called in it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from echelon.agent.loop import READ, Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def test_a_file_closed_by_an_earlier_callback_of_the_same_round(loop: Loop) -> None:
    """Both are ready at once; the first closes the second. (This ended a supervisor once.)"""
    pairs = [socket.socketpair() for _ in range(2)]
    called = []

    def callback(mine: int, other: int, _events: int) -> None:
        called.append(mine)
        loop.forget(pairs[other][0])
        pairs[other][0].close()
        loop.stop()

    for mine, other in ((0, 1), (1, 0)):
        pairs[mine][1].send(b"x")
        loop.watch(pairs[mine][0], READ, partial(callback, mine, other))
    loop.run()
    assert len(called) == 1
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_timers_come_in_order_and_can_be_cancelled(loop: Loop) -> None:
    seen: list[str] = []
    loop.call_later(0.02, lambda: seen.append("second"))
    loop.call_later(0.01, lambda: seen.append("first"))
    loop.call_later(0.015, lambda: seen.append("never")).cancel()
    loop.call_later(0.03, loop.stop)
    loop.run()
    assert seen == ["first", "second"]


def test_nothing_is_called_after_a_stop(loop: Loop) -> None:
    """What is due in the same round may write to what has been closed."""
    pair = socket.socketpair()
    pair[1].send(b"x")
    seen: list[str] = []
    loop.watch(pair[0], READ, lambda _events: (seen.append("read"), loop.stop()))
    loop.call_later(0, lambda: seen.append("late"))
    loop.run()
    loop.forget(pair[0])
    loop.call_later(0, lambda: (seen.append("timer"), loop.stop()))
    loop.call_later(0, lambda: seen.append("later"))
    loop.run()
    assert seen == ["read", "late", "timer"]
    for sock in pair:
        sock.close()


def test_signals_are_heard_in_the_loop(loop: Loop) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        loop.on_signal(signal.SIGUSR1, loop.stop)
        loop.call_later(0, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        loop.run()
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, before)
