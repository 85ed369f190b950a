"""A clock that moves only when somebody sleeps: how often something is tried within its patience does not
depend on how busy the machine is, and takes no time.
"""

from __future__ import annotations


class Clock:
    """Takes the place of the module `time` where code asks for the time and sleeps."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        """The seconds that were slept, from some time on."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
