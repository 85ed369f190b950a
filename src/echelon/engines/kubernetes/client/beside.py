"""A question while another is under way: where neither needs the other's answer, both take the time of one.
So do writes that do not need each other. Those that do are made one after the other, and nothing comes after
a write before its answer: a submission can be cut off between known steps only.

A few at a time are enough for what a submission asks: each more costs a connection, with its handshake."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_LOOK = 0.01  # seconds


class _Answer(Generic[T]):
    """What a thread has found, or the error that it met."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: T
        self._error: Exception | None = None
        self._ended = threading.Event()

    def look(self) -> None:
        try:
            self._found = self._work()
        except Exception as error:  # noqa: BLE001 - raised where the answer is wanted
            self._error = error
        finally:
            self._ended.set()

    def wait(self) -> T:
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._found


def beside(work: Callable[[], T]) -> Callable[[], T]:
    """Begin `work()` in a thread; the function that this returns waits for it, and returns or raises what it
    did.
    """
    answer = _Answer(work)
    _thread(answer).start()
    return answer.wait


def in_turn(*works: Callable[[], Any]) -> list[Callable[[], Any]]:
    """As `beside`, but one after the other, on a connection of one."""
    answers = [_Answer(each) for each in works]
    _thread(*answers).start()
    return [each.wait for each in answers]


def together(*works: Callable[[], object]) -> None:
    """Do all at once, and return, or raise what one of them has raised, when every one has ended: who clears
    away after an error finds all that there will be. Ctrl-C waits for that too, a second one does not.
    """
    answers = [_Answer(each) for each in works]
    threads = [_thread(each) for each in answers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        while not set(threads).isdisjoint(threading.enumerate()):  # which has those that are just starting
            time.sleep(_LOOK)
        raise
    for answer in answers:
        answer.wait()


def _thread(*answers: _Answer[Any]) -> threading.Thread:
    def look() -> None:
        for each in answers:
            each.look()

    return threading.Thread(target=look, name="beside", daemon=True)
