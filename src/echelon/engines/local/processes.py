"""Processes of local runs whose supervisor is gone.

When a supervisor and its agents are killed together, what they started may survive. The next command that
writes finds it by the run's control group, if it has one, and by the run's mark, which every process has in
its environment unless it dropped that. Linux only: elsewhere another process's environment cannot be read."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from echelon.engines.local import cgroups
from echelon.engines.local.folder import rundir
from echelon.engines.local.folder.rundir import RunDir

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


def end_processes(folder: RunDir) -> list[int]:
    """Kill every process of a run that can be found; returns those that could not be ended."""
    return sorted({*end_group(folder), *end_marked_processes(folder.path)})


def end_group(folder: RunDir) -> list[int]:
    """Kill what is in a run's control group, and remove that; returns what could not be ended."""
    group = _group_of(folder)
    return cgroups.end(folder.path, group) if group is not None else []


def has_group(folder: RunDir) -> bool:
    """Whether a run's control group was not removed."""
    group = _group_of(folder)
    return group is not None and group.is_dir()


def _group_of(folder: RunDir) -> Path | None:
    group = (rundir.read_json(folder.supervisor) or {}).get("cgroup")
    return Path(group) if isinstance(group, str) else None


def end_marked_processes(folder: Path) -> list[int]:
    """Kill every process with the mark of the run in a folder; returns those that could not be ended."""
    deadline = time.monotonic() + _PATIENCE
    while left := marked_processes(folder):
        if time.monotonic() > deadline:
            return left
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.01)
    return []
