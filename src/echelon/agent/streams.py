"""The last act of a process of the agent's that does not end as the interpreter would have it end."""

from __future__ import annotations

import sys


def flush() -> None:
    """Have what was printed written; a reader that is gone has missed it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
