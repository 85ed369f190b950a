"""What ranks leave behind when they have ended (data loaders, daemons): asked to end, then killed."""

from __future__ import annotations

import os
import signal
import time

from echelon.agent.loop import Loop
from echelon.agent.ranks.processes import descendants, kill_below, send

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

GRACE = 2.0  # seconds that children of an ended rank get


def end_leftovers(
    loop: Loop, reap: Callable[[], object], groups: list[int], then: Callable[[], object]
) -> None:
    """End every process below this one, and call `then()`; `groups` are those of the ranks, for systems that
    do not show the tree.
    """
    deadline = time.monotonic() + GRACE

    def look(first: bool = False) -> None:
        reap()
        left = descendants(os.getpid())
        if left and first:
            for pid in left:
                send(pid, signal.SIGTERM)
        if left and time.monotonic() < deadline:
            loop.call_later(0.02, look)
            return
        kill_below(os.getpid(), reap, groups)
        then()

    look(first=True)
