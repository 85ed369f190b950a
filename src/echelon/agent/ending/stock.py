"""What a worker holds when its part is over, found out beside the event loop: a tree of a million files takes
a while, and the leader must hear from its members meanwhile."""

from __future__ import annotations

from echelon.agent.files.manifest import manifest_of
from echelon.agent.loop import Loop
from echelon.agent.thread import in_thread

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable


def take_stock(loop: Loop, roots: list[str], then: Callable[[list[dict[str, object]]], object]) -> None:
    """Call `then()` from the loop with the manifests of these trees; one that cannot be read is left out."""
    found: list[dict[str, object]] = []

    def look() -> None:
        for root in roots:
            try:
                found.append(manifest_of(root))
            except (OSError, ValueError):
                pass  # the client compares nothing then, and still checks what it fetches

    in_thread(loop, look, lambda: then(found))
