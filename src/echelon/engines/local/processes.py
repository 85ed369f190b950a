"""Processes of local runs whose supervisor is gone.

When a supervisor and its agents are killed together, what they started may survive. Every process of a run
has the run's mark in its environment, by which the next command finds and kills what is left. Linux only:
elsewhere another process's environment cannot be read."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MARK = "ECHELON_RUN_ID"
_PATIENCE = 5.0


def mark_of(folder: Path, created: float) -> str:
    """The mark of the processes of a run."""
    return f"{folder}@{created}"


def marked_processes(folder: Path) -> list[int]:
    """Every process of the run in a folder, whenever it was created: what says that may be damaged."""
    mark = f"{MARK}={folder}@".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (
                any(word.startswith(mark) for word in (entry / "environ").read_bytes().split(b"\0"))
                and (entry / "stat").read_bytes().rpartition(b") ")[2][:1] != b"Z"
            ):
                found.append(int(entry.name))
        except OSError:
            continue  # gone meanwhile, or another user's
    return [pid for pid in found if pid != os.getpid()]


def end_marked_processes(folder: Path) -> bool:
    """Kill every process of the run in a folder; True if none is left."""
    deadline = time.monotonic() + _PATIENCE
    while left := marked_processes(folder):
        if time.monotonic() > deadline:
            return False
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.01)
    return True
