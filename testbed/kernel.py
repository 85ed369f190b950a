"""Settings of the kernel that a cluster changes: noted before it starts, put back when it ends.

Forwarding is what the pod network needs; the others are what a kubelet sets on every machine it runs on.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from testbed.paths import STATE, write

FORWARDING = "net/ipv4/ip_forward"
CHANGED = (
    FORWARDING,
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_ROOT = Path("/proc/sys")
_BEFORE = STATE / "kernel-before.json"


def prepare() -> None:
    """Note what is set, and let the machine forward between pods."""
    if not _BEFORE.exists():
        write(_BEFORE, json.dumps({name: _read(name) for name in CHANGED}))
    (_ROOT / FORWARDING).write_text("1\n")


def restore() -> None:
    """Put back what was noted, where it differs."""
    with suppress(OSError, ValueError):
        for name, value in json.loads(_BEFORE.read_text()).items():
            if value and value != _read(name):
                with suppress(OSError):
                    (_ROOT / name).write_text(value)


def _read(name: str) -> str:
    with suppress(OSError):
        return (_ROOT / name).read_text()
    return ""
