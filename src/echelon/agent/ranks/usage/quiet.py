"""For how long a worker's ranks have neither printed nor computed, or not printed. Pure.

What stands still with the agent itself, as on a suspended laptop, is not counted: after a gap in the agent's
own looks the time begins anew."""

from __future__ import annotations

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Iterable

COMPUTES = 0.05  # of a core: what a process that only waits stays below, with its watching threads
BUSY = 3  # per cent: what a GPU stays below that only draws a desktop
GAP = 3  # times the time between two looks after which the agent stood still, too
EVERY = 3.0  # seconds between two looks
GPUS_EVERY = 6.0  # the same at GPUs: `nvidia-smi` takes about 20 ms of a processor
_COST = 300  # times as long as a look takes, the next one is waited for at least


def computes(cpus: Iterable[float], gpus: Iterable[int | None]) -> bool:
    """Whether a rank computes: of each the cores that it uses, of each GPU how busy it is in per cent."""
    return any(each >= COMPUTES for each in cpus) or any(each is not None and each >= BUSY for each in gpus)


def pause(stall: float | None, cost: float) -> float:
    """The seconds until the next look, if one costs so many of a processor: a fraction of a per cent of it.
    A stall is noticed within a fourth of its time.
    """
    every = EVERY if stall is None else min(EVERY, max(0.1, stall / 4))
    return max(every, _COST * cost) if stall is None else max(every, min(_COST * cost, stall / 4))


def pause_for_gpus(stall: float | None) -> float:
    """The seconds after which the GPUs are looked at again."""
    return GPUS_EVERY if stall is None else min(GPUS_EVERY, max(0.1, stall / 4))


class Quiet:
    """Counts the seconds since a worker has last done anything."""

    def __init__(self, now: float) -> None:
        self._since = self._last = self._awake = now

    def note(
        self, now: float, expected: float, busy: bool, printed: float, waits_for_keys: bool = False
    ) -> float:
        """Note a look, which was `expected` so many seconds after the last one; `printed` is when a rank last
        did. Returns for how long it has been quiet. A rank that reads what a person types, as in a debugger,
        is none that hangs.
        """
        if waits_for_keys or now - self._last > GAP * expected:
            self._awake = now
        if busy or self._awake == now:
            self._since = now
        self._since = max(self._since, printed)
        self._last = now
        return max(0.0, now - self._since)

    def silent(self, now: float, printed: float) -> float:
        """For how long nothing was printed, as far as the agent did not stand still itself."""
        return max(0.0, now - max(self._awake, printed))
