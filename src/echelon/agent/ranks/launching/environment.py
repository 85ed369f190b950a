"""What a rank needs and a container may lack: a home folder, a temporary folder, a user name, and the number
of CPUs that it may use.

Images are made for one user and started as another, or on a read-only file system; torch alone needs all
four."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import MutableMapping

NAME = "echelon"  # the user name where the user id has none


def complete(env: MutableMapping[str, str], state: str) -> None:
    """Add the missing variables; folders are made in `state`."""
    if not _is_ours(env.get("HOME", "")):
        env["HOME"] = _make(os.path.join(state, "home"))
    temporary = [env[key] for key in ("TMPDIR", "TEMP", "TMP") if key in env]
    if not any(_is_ours(folder) for folder in [*temporary, "/tmp", "/var/tmp", "/usr/tmp"]):  # noqa: S108 - looked at only
        env["TMPDIR"] = _make(os.path.join(state, "tmp"))
    if not ({"LOGNAME", "USER"} & set(env)) and not _has_name(os.getuid()):
        env["LOGNAME"] = env["USER"] = NAME


def threads(procs: int) -> int:
    """The compute threads of one of `procs` ranks: its share of the CPUs that this process may use."""
    return max(1, int(usable_cpus() / procs))


def usable_cpus(root: str = "/") -> float:
    """How many CPUs this process may use: those it may run on, or less by the limit of a control group."""
    try:
        cpus = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):  # macOS
        cpus = float(os.cpu_count() or 1)
    from echelon.agent.ranks.cgroups import cpu_limits

    return min([cpus, *cpu_limits(root)])


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
