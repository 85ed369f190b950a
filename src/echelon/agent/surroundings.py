"""What a rank expects around it and a container may lack: a home, a place for temporary files, a name for the
user, and to know how many CPUs are its own.

Images are made for one user and started as another, or on a file system that cannot be written to; torch
alone asks for all four. Who calls it: `agent.py` once at the start, `launch.py` for the threads of a rank."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Iterator, MutableMapping

NAME = "echelon"  # of a user that has none


def complete(env: MutableMapping[str, str], state: str) -> None:
    """Add what is missing; folders are made in `state`."""
    if not _is_ours(env.get("HOME", "")):
        env["HOME"] = _make(os.path.join(state, "home"))
    temporary = [env[key] for key in ("TMPDIR", "TEMP", "TMP") if key in env]
    if not any(_is_ours(folder) for folder in [*temporary, "/tmp", "/var/tmp", "/usr/tmp"]):  # noqa: S108 - looked at only
        env["TMPDIR"] = _make(os.path.join(state, "tmp"))
    if not ({"LOGNAME", "USER"} & set(env)) and not _has_name(os.getuid()):
        env["LOGNAME"] = env["USER"] = NAME


def threads(procs: int) -> int:
    """The computing threads of one of `procs` ranks: its share of the CPUs that this process may use."""
    return max(1, int(usable_cpus() / procs))


def usable_cpus(root: str = "/") -> float:
    """How many CPUs this process may use: those it may run on, or less by the limit of a control group."""
    try:
        cpus = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):  # macOS
        cpus = float(os.cpu_count() or 1)
    return min([cpus, *_limits(root)])


def _limits(root: str) -> Iterator[float]:
    """The limit of every control group we are in, up to the topmost that can be seen; both versions."""
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        unified = (number, controllers) == ("0", "")
        if unified:
            places = ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            places = ["sys/fs/cgroup/cpu", "sys/fs/cgroup/" + controllers]
        else:
            continue
        for place in places:
            top = os.path.join(root, place)
            parts = [part for part in path.split("/") if part not in ("", "..")]
            for depth in range(len(parts), -1, -1):
                limit = _limit(os.path.join(top, *parts[:depth]), unified)
                if limit is not None:
                    yield limit


def _limit(group: str, unified: bool) -> float | None:
    if unified:
        words = _read(os.path.join(group, "cpu.max")).split()
    else:
        words = [
            _read(os.path.join(group, name)).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        ]
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return int(words[0]) / int(words[1])
    return None  # "max", "-1", or no such file: no limit here


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _is_ours(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _make(folder: str) -> str:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def _has_name(uid: int) -> bool:
    try:
        import pwd

        pwd.getpwuid(uid)
    except (ImportError, KeyError):
        return False
    return True
