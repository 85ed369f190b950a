"""A question while another is under way: where neither needs the other's answer, both take the time of one.
Writes are made in their order, so that a submission can be cut off at known steps only.

Two at a time are enough for what a submission asks: each more costs a connection, with its handshake."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Answer(Generic[T]):
    """What a thread has found, or the error that it met."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: T
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._look, name="beside", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        try:
            self._found = self._work()
        except Exception as error:  # noqa: BLE001 - raised where the answer is wanted
            self._error = error

    def wait(self) -> T:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found


def beside(work: Callable[[], T]) -> Callable[[], T]:
    """Begin `work()` in a thread; the function that this returns waits for it, and returns or raises what it
    did.
    """
    return _Answer(work).wait
