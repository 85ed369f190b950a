"""Work that takes a while, beside the event loop: in a thread, with the outcome handed back to the loop.

Only for work after the last rank's start: forking a process with threads is unsafe."""

from __future__ import annotations

import os
import threading

from echelon.agent.loop import READ, Loop

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable


def in_thread(loop: Loop, work: Callable[[], object], then: Callable[[], object]) -> None:
    """Call `work()` in a thread, and when it has ended, however it did, `then()` from the loop."""
    reader, writer = os.pipe()

    def run() -> None:
        try:
            work()
        finally:
            os.close(writer)

    def on_done(_events: int) -> None:
        loop.forget(reader)
        os.close(reader)
        then()

    loop.watch(reader, READ, on_done)
    threading.Thread(target=run, daemon=True).start()
