"""How a symbolic link of a project must be written to lead to the same place on another machine.

A link inside the project becomes relative, wherever the project is unpacked; one that leads out of it can
only name an absolute path, which the other machine may not have.
"""

from __future__ import annotations

import os
import posixpath


def aim(root: str, path: str, text: str) -> tuple[str, bool]:
    """The target that leads to the same place elsewhere, and whether it is inside the project."""
    folder = posixpath.dirname(path)
    if _stays_inside(folder, text):
        return text, True
    full = posixpath.normpath(posixpath.join(root, folder, text))
    for place in (full, os.path.realpath(full)):
        if place == root or place.startswith(root + "/"):
            return posixpath.relpath(place, posixpath.join(root, folder)), True
    return full, False


def _stays_inside(folder: str, text: str) -> bool:
    """Whether a relative link never climbs above the project's root; the agent accepts no other."""
    if text.startswith("/"):
        return False
    depth = len(folder.split("/")) if folder else 0
    for part in text.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return False
    return True
