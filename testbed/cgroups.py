"""The cgroups of the nodes: one folder per node in every hierarchy, on hosts with cgroup v1 and v2.

The kubelet puts every pod of a node below it, so the folder also shows which processes are pods.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

ROOT = "echelon-testbed"
PATIENCE = 5.0


def kubelet_root(node: str) -> str:
    """The root cgroup of a node's kubelet."""
    return f"/{ROOT}/{node}"


def make(node: str) -> None:
    """The node's folder in every hierarchy, ready for the kubelet."""
    for top in _hierarchies():
        folder = top / ROOT / node
        folder.mkdir(parents=True, exist_ok=True)
        for path in (top / ROOT, folder):
            _prepare(path)


def kill(node: str = "") -> None:
    """Kill every pod process of a node, or of all nodes: all at once, so that none reports another's end."""
    for pid in _members(node):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE
    while (pids := _members(node)) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def remove(node: str = "") -> None:
    """Remove the folders of a node, or of all: deepest first, once they are empty."""
    for top in _hierarchies():
        base = top / ROOT / node
        for folder, _, _ in os.walk(base, topdown=False):
            _remove_empty(Path(folder))


def _remove_empty(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            # The kernel removes a killed process from its cgroup with a delay.
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)


def _members(node: str) -> set[int]:
    found: set[int] = set()
    for top in _hierarchies():
        for path in (top / ROOT / node).rglob("cgroup.procs"):
            with suppress(OSError):
                found |= {int(line) for line in path.read_text().split() if line != "0"}
    return found


def _hierarchies() -> list[Path]:
    """The mount point of every v1 controller and of the v2 tree."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(fields[1]) for fields in mounts if fields[2] in ("cgroup", "cgroup2")]


def _prepare(folder: Path) -> None:
    # v1: a cpuset without processors accepts no process. v2: each level must enable its controllers.
    for name in ("cpuset.cpus", "cpuset.mems"):
        with suppress(OSError):
            if not (folder / name).read_text().strip():
                (folder / name).write_text((folder.parent / name).read_text())
    with suppress(OSError):
        offered = (folder / "cgroup.controllers").read_text().split()
        for controller in offered:
            with suppress(OSError):
                (folder.parent / "cgroup.subtree_control").write_text(f"+{controller}")
            with suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
