"""Whether the kernel has killed for lack of memory, and at which limit: who was killed cannot say it.

Who calls it: `ranks.py`, when a rank was killed. What is read is the control group that is seen here: in a
container its own, with the limit that its pod was given."""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"
_FILES = (("memory.events", "memory.max"), ("memory/memory.oom_control", "memory/memory.limit_in_bytes"))
_NO_LIMIT = 1 << 60  # the first version of control groups writes a number near 2**63 for it
_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def kills(root: str = ROOT) -> int:
    """How many processes were killed here since the group was made."""
    for events, _ in _FILES:
        for line in _read(os.path.join(root, events)).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


def limit(root: str = ROOT) -> str:
    """The limit, as Kubernetes writes it; nothing if there is none."""
    for _, name in _FILES:
        text = _read(os.path.join(root, name)).strip()
        if text.isdigit() and int(text) < _NO_LIMIT:
            size = int(text)
            for unit, factor in _UNITS:
                if size % factor == 0 and size:
                    return "%d%s" % (size // factor, unit)
            return str(size)
    return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
