"""The project folder of a script, and whether a folder may be shipped at all.

The project of a script is the nearest folder above it with a `pyproject.toml` or `.git`, else the script's
own folder. The user's home, the folders above it, and world-writable folders (`/tmp`) are not projects,
whatever lies in them: a repository of dotfiles must not turn a small experiment into a copy of the home
folder. They count only for scripts directly in them, and are shipped only when they contain a
`pyproject.toml` or an `.echelonignore`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from echelon.errors import CannotShip
from echelon.home_folder import home_folder


def find_project(script: Path) -> Path:
    """The project folder of a script, with links resolved, as Python does for a script's own folder."""
    script = script.resolve()
    own = script if script.is_dir() else script.parent
    return nearest(own, ("pyproject.toml", ".git")) or own


def nearest(folder: Path, markers: Sequence[str]) -> Path | None:
    """The nearest folder with a marker that may be a project, from a resolved folder upwards."""
    for candidate in (folder, *folder.parents):
        if candidate != folder and _is_shared_folder(candidate):
            continue
        if holds(candidate, markers):
            return candidate
    return None


def check_root(root: Path) -> None:
    """Refuse a path that is not a folder, or a folder that holds much more than a project."""
    if not root.is_dir():
        raise CannotShip(f"{root} is not a folder", hint="name the folder that holds the code")
    if _is_shared_folder(root) and not holds(root, ("pyproject.toml", ".echelonignore")):
        raise CannotShip(
            f"{root} is not a project: shipping it would ship everything in it",
            hint="move the script to a folder of its own, or say in an .echelonignore what to leave out",
        )


def holds(folder: Path, names: Sequence[str]) -> bool:
    """Whether a folder contains one of these names."""
    return any(os.path.exists(folder / name) for name in names)  # noqa: PTH110 - Path raises where it may not look


def _is_shared_folder(folder: Path) -> bool:
    home = home_folder()
    if home is not None and Path(os.path.realpath(home)).is_relative_to(folder):
        return True
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)
