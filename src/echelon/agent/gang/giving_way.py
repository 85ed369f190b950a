"""When a gang that is not whole gives way: how long it waits for its missing workers before all leave. Pure.

Pods that the scheduler makes wait for GPUs come one by one, and each holds its GPUs from then on. Two runs
could each hold half of what the other needs, for ever. So a gang that is not whole leaves after a while, with
an exit code that the Job's `podFailurePolicy` ignores, and comes back when the Job controller makes its pods
again. The time is drawn at random, so that not all gangs leave at once.

An agent does not know why another is missing; its image may still be pulled. The first time is therefore long
(`task.give_way` seconds at least, twice that at most), and it doubles with each round. From the second round
on it is longer than the Job controller's longest back-off, `LONGEST_BACK_OFF`: once the GPUs of a whole gang
are free, it is whole after twice that time at most, and after one such time unless its leader is in its first
round. After `MOST_ROUNDS` the gang waits for its time to join and then fails, so that the ended pods of one
worker are never more than that."""

from __future__ import annotations

LONGEST_BACK_OFF = 600.0  # seconds that the Job controller waits before it replaces a pod
MOST_ROUNDS = 30
_DOUBLINGS = 3


def time_to_wait(least: float, rounds: int, drawn: float) -> float | None:
    """Seconds that a gang waits to be whole after it gave way `rounds` times; `drawn` is from 0 to 1.

    None if it does not give way: the run does not wait for GPUs, or it did so too often."""
    if least <= 0 or rounds >= MOST_ROUNDS:
        return None
    return float(least * 2 ** min(rounds, _DOUBLINGS) * (1.0 + drawn))


def why(missing: list[int], seconds: float) -> str:
    """What is told of a gang that gives way."""
    shown = ", ".join(map(str, missing[:8])) + (" and %d more" % (len(missing) - 8) if missing[8:] else "")
    names = ("worker %s was" if len(missing) == 1 else "workers %s were") % shown
    time = "%.0f min" % (seconds / 60) if seconds >= 90 else "%.0f s" % seconds
    return "it gave way to other runs, and starts again by itself: %s missing for %s" % (names, time)
