"""Kernel settings that a cluster changes: saved before it starts, restored when it ends.

The pod network needs forwarding; a kubelet sets the others.
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
    """Save the settings, and let the machine forward between pods."""
    if not _BEFORE.exists():
        write(_BEFORE, json.dumps({name: _read(name) for name in CHANGED}))
    (_ROOT / FORWARDING).write_text("1\n")


def restore() -> None:
    """Restore the saved settings where they differ."""
    with suppress(OSError, ValueError):
        for name, value in json.loads(_BEFORE.read_text()).items():
            if value and value != _read(name):
                with suppress(OSError):
                    (_ROOT / name).write_text(value)


def _read(name: str) -> str:
    with suppress(OSError):
        return (_ROOT / name).read_text()
    return ""
