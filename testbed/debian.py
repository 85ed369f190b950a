"""What the testbed needs from the machine: a check for tests, and the packages that it installs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from echelon.errors import Unavailable
from testbed.paths import CACHE
from testbed.progress import run_long

CNI_PLUGINS = Path("/usr/lib/cni")
# A package, and a file that proves it: asking dpkg would tie the check, not only the installation, to Debian.
PACKAGES = {
    "runc": "runc",
    "containernetworking-plugins": str(CNI_PLUGINS / "bridge"),
    "iproute2": "ip",
    "iptables": "iptables",
    "nftables": "nft",
    "conntrack": "conntrack",
    "mmdebstrap": "mmdebstrap",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "openssl": "openssl",
}


def missing() -> str:
    """Why the testbed cannot run on this machine, in one line; empty if it can."""
    if sys.platform != "linux":
        return f"the Kubernetes testbed needs Linux, not {sys.platform}"
    if os.geteuid() != 0:
        return "the Kubernetes testbed needs root (network, mounts, cgroups)"
    if not shutil.which("go"):
        return "the Kubernetes testbed needs Go 1.26 or newer to build Kubernetes"
    if (absent := absent_packages()) and not shutil.which("apt-get"):
        return f"the Kubernetes testbed needs {', '.join(absent)}, and there is no apt-get to install them"
    return ""


def tool(name: str) -> str:
    """The full path of one of the machine's programs."""
    path = shutil.which(name)
    if not path:
        raise Unavailable(
            f"{name} is not on this machine", hint="`python -m testbed up` installs what is missing"
        )
    return path


def absent_packages() -> list[str]:
    """The Debian packages that this machine lacks."""
    return [
        name
        for name, proof in PACKAGES.items()
        if not (Path(proof).exists() if "/" in proof else shutil.which(proof))
    ]


def install_packages() -> None:
    """Install what is absent; raises Unavailable with the reason if the testbed cannot run."""
    if reason := missing():
        raise Unavailable(reason, hint="or set ECHELON_TEST_KUBECONFIG to use a cluster that exists")
    if absent := absent_packages():
        install(absent)


def install(packages: Sequence[str]) -> None:
    """Install Debian packages; the lists of what there is are fetched first, since a new machine has none."""
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    run_long(
        "apt-get update",
        [tool("apt-get"), "update", "-q"],
        log=CACHE / "logs" / "apt-update.log",
        env=env,
    )
    run_long(
        f"installing {', '.join(packages)}",
        [tool("apt-get"), "install", "-q", "-y", "--no-install-recommends", *packages],
        log=CACHE / "logs" / "apt-install.log",
        env=env,
    )
