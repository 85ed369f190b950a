"""Which Kubernetes the cluster of this machine is: the newest that is pinned, or an older one by its number.

The choice is made when a cluster starts, and kept in its state folder: a node that is added later, and
kubectl in another process, must be of the same version.
"""

from __future__ import annotations

import os

from echelon.errors import StateTrouble, Unavailable
from testbed import programs
from testbed.paths import STATE, write

VARIABLE = "ECHELON_TESTBED_KUBERNETES"
CHOSEN = STATE / "kubernetes"
NEWEST = "kubernetes"


def known() -> dict[str, str]:
    """The versions that can be built, and the Go module of each."""
    names = (name for name in programs.SOURCES if name.partition("-")[0] == NEWEST)
    return {programs.version(name).removeprefix("v"): name for name in names}


def find(number: str) -> str:
    """The module for `1.31` or `1.31.4`; the newest for nothing."""
    if not number:
        return NEWEST
    for version, name in known().items():
        if f"{version}.".startswith(f"{number}."):
            return name
    raise Unavailable(
        f"the testbed cannot build Kubernetes {number}", hint=f"it can build: {', '.join(sorted(known()))}"
    )


def current() -> str:
    """The module of the cluster that runs, or of the one that would start now."""
    return CHOSEN.read_text() if CHOSEN.exists() else find(os.environ.get(VARIABLE, ""))


def choose() -> None:
    """Keep the choice for the cluster that starts now."""
    write(CHOSEN, find(os.environ.get(VARIABLE, "")))


def check_running() -> None:
    """Refuse to take a cluster of one version for another that was asked for."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted and find(wanted) != current():
        raise StateTrouble(
            f"the cluster of this machine is Kubernetes {programs.version(current())}, not {wanted}",
            hint="end it first: python -m testbed down",
        )


def needed() -> list[str]:
    """Every module but those of the other versions of Kubernetes."""
    return [name for name in programs.SOURCES if name not in known().values() or name == current()]
