"""Which copies run in the same pod: a process of this agent's archive beside the one that asks."""

from __future__ import annotations

import os
import sys


def is_copying() -> bool:
    """Whether files are sent, received or listed here now. A copy without a reader ends by itself."""
    return bool(copies_beside())


def copies_beside() -> list[str]:
    """The process ids of the copies."""
    try:
        found = os.listdir("/proc")
    except OSError:
        return []
    own = str(os.getpid())
    return [name for name in found if name.isdigit() and name != own and _is_copy(name)]


def _is_copy(process: str) -> bool:
    try:
        with open("/proc/%s/cmdline" % process, "rb") as file:
            arguments = file.read()
    except OSError:
        return False  # it has ended
    # Only copies by this agent's archive: a process list may show those of other pods. And not another
    # `hold`: two that see each other would stay for ever.
    ours = os.fsencode(sys.argv[0]) + b"\0files\0"
    return ours in arguments and ours + b"hold\0" not in arguments
