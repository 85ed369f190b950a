"""The pod network: one bridge for the pods of all nodes, and the addresses of the nodes.

Nothing listens on the machine's real interfaces, and pods cannot reach anything outside the cluster.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from echelon.errors import Unavailable
from testbed.debian import tool
from testbed.paths import write

BRIDGE = "echelon0"
POD_NETWORK = "10.244.0.0/16"
GATEWAY = "10.244.0.1"
SERVICE_NETWORK = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"


def node_address(index: int) -> str:
    """Outside the pods' range: the CNI plugin refuses a second address of its subnet on the bridge."""
    return f"10.245.0.{index}"


def make_bridge() -> None:
    """Create the bridge with the gateway's address."""
    if not Path("/sys/class/net", BRIDGE).exists():
        taken = _ip("route", "show", "to", "match", POD_NETWORK)
        if any(line.startswith("10.") for line in taken.splitlines()):
            raise Unavailable(
                f"this machine has a route into {POD_NETWORK} already: {taken.strip()}",
                hint="end that network first",
            )
        _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "replace", f"{GATEWAY}/16", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")


def add_node_address(index: int) -> None:
    """One address per node, so that every kubelet has the usual port."""
    _ip("address", "replace", f"{node_address(index)}/32", "dev", BRIDGE)


def write_cni(folder: Path, index: int) -> Path:
    """The CNI configuration of one node: the common subnet, a range of its own."""
    configuration = {
        "cniVersion": "1.0.0",
        "name": "testbed",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isDefaultGateway": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(folder / "addresses"),
                    "ranges": [
                        [
                            {
                                "subnet": POD_NETWORK,
                                "rangeStart": f"10.244.{index}.1",
                                "rangeEnd": f"10.244.{index}.254",
                                "gateway": GATEWAY,
                            }
                        ]
                    ],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    write(folder / "net.d" / "10-testbed.conflist", json.dumps(configuration, indent=1))
    return folder / "net.d"


def remove() -> None:
    """Remove everything that was made: rules, the bridge, and links that still use it."""
    for family in ("ip", "ip6"):
        subprocess.run(
            [tool("nft"), "delete", "table", family, "kube-proxy"], capture_output=True, check=False
        )
    for path in Path("/sys/class/net").glob("*/master"):
        if path.resolve().name == BRIDGE:
            subprocess.run([tool("ip"), "link", "delete", path.parent.name], capture_output=True, check=False)
    if Path("/sys/class/net", BRIDGE).exists():
        _ip("link", "delete", BRIDGE)


def _ip(*words: str) -> str:
    done = subprocess.run([tool("ip"), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(
            f"ip {' '.join(words)}: {done.stderr.strip()}",
            hint="the testbed needs root and a kernel with bridges",
        )
    return done.stdout
