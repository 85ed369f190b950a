"""The folders of the testbed, all of them in this file.

What can be rebuilt from versions is in the cache (binaries, images); what belongs to the one running cluster
is in the state folder, so that `down` finds it even after a crash.
"""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
GO_SOURCES = Path(__file__).resolve().parent / "go"

_HOME_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = _HOME_CACHE / "echelon" / "testbed"

# One cluster per machine: it uses the machine's bridge, service addresses and ports, and so one folder.
STATE = Path(os.environ.get("ECHELON_TESTBED_STATE", "/var/lib/echelon-testbed"))

CLUSTER_FILE = STATE / "cluster.json"
KUBECONFIG = STATE / "admin.kubeconfig"
CERTIFICATES = STATE / "certificates"
PROCESSES = STATE / "processes"
LOGS = STATE / "logs"
NODES = STATE / "nodes"
VOLUMES = STATE / "volumes"
AUDIT_LOG = STATE / "audit.log"
# Beside the folder, not in it: the lock must outlive the removal of what it guards.
LOCK = STATE.with_name(STATE.name + ".lock")


def write(path: Path, text: str, *, mode: int = 0o644) -> Path:
    """Write a whole file or nothing; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.chmod(mode)
    temporary.replace(path)
    return path
