"""Removing large folders: renamed at once, deleted in the background.

Unpacked images are tens of thousands of files; `down` should not wait for the disk. What a crash left
half deleted is removed the next time.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from testbed.debian import tool
from testbed.paths import STATE

_MARK = f"{STATE.name}.trash-"


def discard(folder: Path) -> None:
    """Remove a folder; nothing may be mounted below it."""
    if folder.exists():
        folder.rename(STATE.with_name(_MARK + secrets.token_hex(4)))
    if leftovers := [str(path) for path in STATE.parent.glob(f"{_MARK}*")]:
        silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        words = [tool("rm"), "-rf", "--one-file-system", "--", *leftovers]
        os.posix_spawn(words[0], words, os.environ, file_actions=silent, setsid=True)
