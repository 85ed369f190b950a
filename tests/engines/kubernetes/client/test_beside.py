"""What is done beside: it is under way at once, and what it found or met comes where it is asked for."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from tests.conftest import PATIENCE

from echelon.engines.kubernetes.client.beside import beside, in_turn, together


def test_it_runs_while_the_caller_goes_on() -> None:
    met = threading.Barrier(2)
    answer = beside(lambda: met.wait(PATIENCE))
    met.wait(PATIENCE)
    assert answer() == answer()


def test_its_error_is_the_callers() -> None:
    answer = beside(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            answer()


def test_in_turn_one_ends_before_the_next_begins() -> None:
    said: list[str] = []
    ready = threading.Event()

    def slow() -> str:
        ready.wait(PATIENCE)
        said.append("slow")
        return "found"

    first, second, third = in_turn(slow, lambda: 1 // 0, lambda: said.append("last"))
    ready.set()
    third()
    assert (first(), said) == ("found", ["slow", "last"])
    with pytest.raises(ZeroDivisionError):
        second()


def test_what_is_done_together_meets() -> None:
    met = threading.Barrier(3)
    together(*[lambda: met.wait(PATIENCE)] * 3)


def test_an_error_is_raised_when_all_have_ended() -> None:
    failed, ended = threading.Event(), threading.Event()

    def fail() -> None:
        failed.set()
        raise ZeroDivisionError

    def end() -> None:
        failed.wait(PATIENCE)
        time.sleep(0.05)
        ended.set()

    with pytest.raises(ZeroDivisionError):
        together(fail, end)
    assert ended.is_set()


def test_an_interrupt_is_raised_when_all_that_has_begun_has_ended() -> None:
    begun, ended = threading.Event(), threading.Event()

    def end() -> None:
        begun.set()
        time.sleep(0.1)
        ended.set()

    def interrupt() -> None:
        begun.wait(PATIENCE)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        together(end, interrupt)
    assert ended.is_set()
