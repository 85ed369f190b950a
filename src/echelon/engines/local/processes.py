"""Processes of local runs that nobody looks after any more.

When a supervisor and its agents are killed together, what they had started may live on. Every process of a
run carries the run's mark in its environment, and by it the next command finds and ends what is left. Linux
only: elsewhere another process's environment cannot be read."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MARK = "ECHELON_RUN_ID"
_PATIENCE = 5.0


def marked_processes(run_id: str) -> list[int]:
    """Every process that carries a run's mark."""
    mark = f"{MARK}={run_id}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark in (entry / "environ").read_bytes().split(b"\0")
                and (entry / "stat").read_bytes().rpartition(b") ")[2][:1] != b"Z"
            ):
                found.append(int(entry.name))
        except OSError:
            continue  # gone in the meantime, or somebody else's
    return [pid for pid in found if pid != os.getpid()]


def end_marked_processes(run_id: str) -> bool:
    """Kill every process of a run; True if none is left."""
    deadline = time.monotonic() + _PATIENCE
    while left := marked_processes(run_id):
        if time.monotonic() > deadline:
            return False
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.01)
    return True
