"""The user's home folder, which not every user has: a container may run under an id that has no user. `Path`
raises there, for `~` and for `~name`; a shell leaves them as they are, and so do we."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def home_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """HOME, or what the system knows of the user; None if that is nothing."""
    named = environment.get("HOME") or str(expanded("~"))
    return None if named == "~" else Path(named)


def expanded(path: str) -> Path:
    """A path that a person wrote, with the home folder that it begins with, if there is one."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - this is the one place
