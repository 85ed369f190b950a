"""Unmounting everything below the state folder: volumes, root file systems, network namespaces."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_LAZILY = 2  # MNT_DETACH: a mount that a dying process still uses ends with that process


def unmount_below(folder: Path) -> None:
    """Unmount everything below a folder, the deepest first."""
    below = f"{folder}{os.sep}"
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    libc = ctypes.CDLL(None, use_errno=True)
    for point in sorted((point for point in points if point.startswith(below)), key=len, reverse=True):
        libc.umount2(os.fsencode(point), _LAZILY)
