"""When to ask again, and after how long.

A request that changes nothing, or the same thing twice, is repeated while there is patience left; one that
makes something only when it certainly was not carried out. Called by `session`."""

from __future__ import annotations

import os

FIRST, LONGEST = 0.1, 2.0


def next_delay(attempt: int, left: float, asked: float | None = None) -> float | None:
    """Seconds to wait before attempt number `attempt` (from 1), or nothing when patience is over.

    `asked` is what the server asked for; it is kept to, unless that is longer than there is patience."""
    if left <= 0:
        return None
    if asked is not None:
        return asked if asked <= left else None
    longest = min(LONGEST, FIRST * 2.0 ** min(attempt - 1, 10))
    # Half of it is chance, so that clients that lost the server together do not come back together.
    return min(left, longest * (0.5 + os.urandom(1)[0] / 510))


def asked_delay(header: str | None) -> float | None:
    """The seconds of a Retry-After header. API servers send a number; a date, as others may, is no wish."""
    word = (header or "").strip()
    return float(word) if word.isdecimal() else None
