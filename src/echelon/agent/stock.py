"""What a worker holds when its part is over, found out beside the event loop: a tree of a million files takes
a while, and the leader must hear from its members meanwhile.

A thread does it. No rank is forked any more by then, so the agent may have one."""

from __future__ import annotations

import os
import threading

from echelon.agent.files.manifest import manifest_of
from echelon.agent.loop import READ, Loop

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable


def take_stock(loop: Loop, roots: list[str], then: Callable[[list[dict[str, object]]], object]) -> None:
    """Call `then()` from the loop with the manifests of these trees; one that cannot be read is left out."""
    found: list[dict[str, object]] = []
    reader, writer = os.pipe()

    def look() -> None:
        try:
            for root in roots:
                try:
                    found.append(manifest_of(root))
                except (OSError, ValueError):
                    pass  # the client compares nothing then, and still checks what it fetches
        finally:
            os.close(writer)

    def on_done(_events: int) -> None:
        loop.forget(reader)
        os.close(reader)
        then(found)

    loop.watch(reader, READ, on_done)
    threading.Thread(target=look, daemon=True).start()
