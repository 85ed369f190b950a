"""Where echelon keeps what it must remember on this machine. What packs a project needs to know it, too: the
folder never travels."""

from __future__ import annotations

import os
from pathlib import Path

from echelon.errors import StateTrouble
from echelon.home_folder import home_folder


def state_home() -> Path:
    """The state folder: ECHELON_HOME, or below XDG_STATE_HOME, or below the user's home folder."""
    if home := os.environ.get("ECHELON_HOME"):
        try:
            return Path(home).expanduser().absolute()
        except RuntimeError:
            raise StateTrouble(
                f"ECHELON_HOME: {home} names no folder", hint="set it to an absolute path"
            ) from None
    base = os.environ.get("XDG_STATE_HOME", "")
    if base.startswith("/"):
        return Path(base) / "echelon"
    home = os.environ.get("HOME", "/")
    if not home.startswith("/"):  # every folder would have a state of its own
        raise StateTrouble(f"HOME: {home!r} is no absolute path", hint="set it, or ECHELON_HOME, to one")
    found = home_folder()
    if found is None:
        raise StateTrouble("there is no home folder to keep the state in", hint="set ECHELON_HOME")
    return found / ".local" / "state" / "echelon"
