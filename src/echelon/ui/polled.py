"""Something that is looked at again when a page asks and the last look is old: all pages share the look,
and where no page is open nothing is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Polled(Generic[T]):
    """The value of `look`, at most `every` seconds old; `version` counts its changes."""

    def __init__(self, look: Callable[[], T], every: float) -> None:
        self._look, self._every = look, every
        self._lock = threading.Lock()
        self._value: T | None = None
        self._seen: float | None = None
        self.version = 0

    def get(self) -> tuple[T, int]:
        """The value and its version; an error of the look is raised in every caller."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen >= self._every:
                value = self._look()
                if self._seen is None or value != self._value:
                    self.version += 1
                self._value, self._seen = value, time.monotonic()
            assert self._value is not None
            return self._value, self.version

    def forget(self) -> None:
        """Look again the next time: something was changed."""
        with self._lock:
            self._seen = None
