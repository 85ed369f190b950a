"""A script's project, packed for shipping: its folder, its files, and the archive.

`project` finds the folder, `survey` chooses the files, `gitignore` applies git's rules, `archive` writes the
bytes. The agent's `unpack` reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelon.bundle.archive import Bundle, pack, pack_files
    from echelon.bundle.project import find_project

__all__ = ["Bundle", "find_project", "pack", "pack_files"]

_HOMES = {
    "Bundle": "archive",
    "find_project": "project",
    "pack": "archive",
    "pack_files": "archive",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a script that runs in place is not packed."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
