"""The worker's limits from its control groups: CPUs, memory, and kills for lack of memory.

A process sees the whole machine's CPUs and memory, whatever its container was given; and a process that is
killed for lack of memory cannot report it. Both versions of control groups are read; `root` is the root of
the file system."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Iterator

_TOP = "sys/fs/cgroup"
_MEMORY = (("memory.events", "memory.max"), ("memory/memory.oom_control", "memory/memory.limit_in_bytes"))
_IN_USE = (
    ("memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
_NO_LIMIT = 1 << 60  # the first version of control groups writes a number near 2**63 for it
_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


class MemoryKills:
    """Processes that are killed for lack of memory from now on, each told once."""

    def __init__(self) -> None:
        self._known = memory_kills()

    def take_one(self) -> bool:
        """Whether there is one that was not told yet."""
        if memory_kills() <= self._known:
            return False
        self._known += 1
        return True

    def describe(self) -> str:
        """Why it was killed."""
        limit = memory_limit()
        return "out of memory, the limit is %s" % limit if limit else "out of memory"


def cpu_limits(root: str = "/") -> Iterator[float]:
    """The limit of every control group of this process, up to the topmost visible one."""
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        unified = (number, controllers) == ("0", "")
        if unified:
            places = [_TOP, _TOP + "/unified"]
        elif "cpu" in controllers.split(","):
            places = [_TOP + "/cpu", _TOP + "/" + controllers]
        else:
            continue
        for place in places:
            top = os.path.join(root, place)
            parts = [part for part in path.split("/") if part not in ("", "..")]
            for depth in range(len(parts), -1, -1):
                limit = _cpu_limit(os.path.join(top, *parts[:depth]), unified)
                if limit is not None:
                    yield limit


def memory_kills(root: str = "/") -> int:
    """How many processes of the visible group (in a container its own) were killed for lack of memory since
    the group was created.
    """
    for events, _ in _MEMORY:
        for line in _read(os.path.join(root, _TOP, events)).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


def memory_limit(root: str = "/") -> str:
    """That group's limit, as Kubernetes writes it; "" if there is none."""
    size = memory_limit_bytes(root)
    if size is None:
        return ""
    for unit, factor in _UNITS:
        if size % factor == 0 and size:
            return "%d%s" % (size // factor, unit)
    return str(size)


def memory_limit_bytes(root: str = "/") -> int | None:
    """That group's limit in bytes; None if there is none."""
    for _, name in _MEMORY:
        text = _read(os.path.join(root, _TOP, name)).strip()
        if text.isdigit() and int(text) < _NO_LIMIT:
            return int(text)
    return None


def memory_in_use(root: str = "/") -> int | None:
    """What that group uses, without files that the kernel would drop first, as Kubernetes counts it; None
    where it is not told.
    """
    for used, stat, idle in _IN_USE:
        text = _read(os.path.join(root, _TOP, used)).strip()
        if text.isdigit():
            for line in _read(os.path.join(root, _TOP, stat)).splitlines():
                name, _, count = line.partition(" ")
                if name == idle and count.isdigit():
                    return max(0, int(text) - int(count))
            return int(text)
    return None


def _cpu_limit(group: str, unified: bool) -> float | None:
    if unified:
        fields = _read(os.path.join(group, "cpu.max")).split()
    else:
        fields = [
            _read(os.path.join(group, name)).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        ]
    if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit() and int(fields[1]):
        return int(fields[0]) / int(fields[1])
    return None  # "max", "-1", or no such file: no limit here


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
