"""A lock file that the kernel releases when its holder dies. Who waits for one for long says whom it waits
for: a test run beside another one would seem to hang.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from testbed.progress import say

SAID_AFTER = 2.0  # seconds; most locks are held for less
_LOCKS = Path("/proc/locks")


@contextmanager
def held(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock file while the block runs; waits while another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with path.open("a") as file:
        if not _taken_soon(file, kind):
            say(f"testbed: waiting for {path}, held by {_described(holders(path))}")
            fcntl.flock(file, kind)
        yield


@contextmanager
def tried(path: Path) -> Iterator[bool]:
    """Whether the lock file is free; if so, it is held while the block runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        yield _taken(file, fcntl.LOCK_EX)


def holders(path: Path) -> list[int]:
    """The processes that hold a lock file, as far as the kernel tells."""
    try:
        return parse_holders(_LOCKS.read_text(), path.stat().st_ino)
    except OSError:
        return []


def parse_holders(locks: str, inode: int) -> list[int]:
    """The pids in /proc/locks that hold this inode, each once. The file's device is not looked at: what the
    kernel calls it differs from what `stat` says on some file systems. Lines with an arrow only wait.
    """
    rows = (line.split() for line in locks.splitlines())
    found = [
        int(row[4])
        for row in rows
        if len(row) > 5 and row[1] == "FLOCK" and row[5].rpartition(":")[2] == str(inode)
    ]
    return list(dict.fromkeys(found))


def _taken_soon(file: TextIO, kind: int) -> bool:
    """Whether the lock could be had before it is worth a word."""
    deadline = time.monotonic() + SAID_AFTER
    while not _taken(file, kind):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _taken(file: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _described(pids: list[int]) -> str:
    """Whoever these processes are, with the folder that each works in: a checkout, mostly."""
    return ", ".join(f"process {pid}{_folder_of(pid)}" for pid in pids) or "another process"


def _folder_of(pid: int) -> str:
    try:
        return f" in {Path(f'/proc/{pid}/cwd').readlink()}"
    except OSError:
        return ""
