"""A control group for each run, where this machine allows one: what is in it is the run's, whatever it has
done to its parents, its session and its environment.

The group is of version 2, alone or beside version 1, and is made below the one that the supervisor comes
from, so that every limit stays. That takes root, or a group that was delegated to the user; elsewhere there
is none. Standard library only: the supervisor uses it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

_ESCAPE = re.compile(r"\\([0-7]{3})")
_PATIENCE = 5.0  # seconds until what was killed is gone
_PAUSE = 0.005


def mounts(mountinfo: str) -> Iterator[tuple[str, str]]:
    """Where control groups of version 2 are mounted: the group at the root of the mount, and the folder."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if after.split(" ")[0] == "cgroup2" and len(fields) > 4:
            yield _plain(fields[3]), _plain(fields[4])


def own_group(mountinfo: str, membership: str) -> Path | None:
    """The folder of a process's group; None if it is not to be seen from here. `membership` is the content of
    its /proc/PID/cgroup.
    """
    path = next((line[3:] for line in membership.splitlines() if line.startswith("0::/")), None)
    if path is None or ".." in path.split("/"):  # of a process outside of our namespace
        return None
    for root, folder in mounts(mountinfo):
        base = root.rstrip("/")
        if path == base or path.startswith(f"{base}/"):
            return Path(folder + path[len(base) :])
    return None


def is_of(run: Path, group: Path, mountinfo: str) -> bool:
    """Whether a group can be that of the run in a folder: what is in any other is never ended, whatever a
    damaged or copied folder says.
    """
    if not group.name.startswith(_prefix(run)) or ".." in group.parts:
        return False
    return any(group.is_relative_to(folder) for _root, folder in mounts(mountinfo))


def choose(run: Path) -> Path | None:
    """Where this process can make a group for the run in a folder; None where it cannot. Nothing is made."""
    own = own_group(_read("/proc/self/mountinfo"), _read("/proc/self/cgroup"))
    if own is None or not (os.access(own, os.W_OK) and os.access(own / "cgroup.procs", os.W_OK)):
        return None
    return own / f"{_prefix(run)}{os.urandom(8).hex()}"


def enter(group: Path) -> bool:
    """Make a group and move this process into it, and with it all that it starts from now on."""
    try:
        group.mkdir()
        _move_to(group)
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return False
    return True


def leave(group: Path) -> None:
    """Move this process back to where it came from."""
    with contextlib.suppress(OSError):
        _move_to(group.parent)


def end(run: Path, group: Path) -> list[int]:
    """Kill every process of a run's group but this one, and remove it; returns those that are still there."""
    if not group.is_dir() or not is_of(run, group, _read("/proc/self/mountinfo")):
        return []
    deadline = time.monotonic() + _PATIENCE
    while left := [pid for pid in members(group) if pid != os.getpid()]:
        if time.monotonic() > deadline:
            return left
        _kill(group, left)
        time.sleep(_PAUSE)
    for folder, _below, _files in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):  # this process is in it
            os.rmdir(folder)  # noqa: PTH106 - as os.walk names it
    return []


def members(group: Path) -> list[int]:
    """Every process of a group and of those below it; none if it is gone."""
    found = []
    for folder, _below, _files in os.walk(group):
        found += [int(word) for word in _read(f"{folder}/cgroup.procs").split()]
    return [pid for pid in found if pid]  # 0: of a namespace that is not ours


def _kill(group: Path, pids: list[int]) -> None:
    if os.getpid() not in members(group):
        with contextlib.suppress(OSError):  # a kernel before 5.14 has no such file
            (group / "cgroup.kill").write_bytes(b"1")
            return
    for pid in pids:
        # A number may be another process's by now: what is killed is what was a member when it was opened.
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                if pid in members(group):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)


def _move_to(group: Path) -> None:
    (group / "cgroup.procs").write_bytes(b"0")


def _prefix(run: Path) -> str:
    return f"echelon-{zlib.crc32(os.fsencode(run)):08x}-"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="surrogateescape")
    except OSError:
        return ""


def _plain(field: str) -> str:
    """A field of mountinfo, in which blanks and backslashes are written as octal numbers."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)
