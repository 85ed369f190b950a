"""One node: its containerd, its kubelet, its part of the pod network. Several fit on a machine.

A node owns a folder, an address, a cgroup and a mark on its processes. Everything that belongs to it is found
by those, so that it can be killed, or removed, alone.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path

import yaml

from testbed import cgroups, network, processes, programs, versions
from testbed.certificates import AUTHORITY, write_kubeconfig
from testbed.controlplane import wait_for
from testbed.debian import CNI_PLUGINS
from testbed.images import SANDBOX, reference
from testbed.locking import held
from testbed.mounts import unmount_below
from testbed.paths import NODES, STATE, write
from testbed.trash import discard

CONTAINER_LINKS = Path("/var/log/containers")


def names() -> list[str]:
    """Every node, including dead ones."""
    return sorted(path.parent.name for path in NODES.glob("*/index"))


def socket_path(name: str) -> Path:
    """Where the containerd of a node listens."""
    return NODES / name / "containerd.sock"


def start(name: str) -> None:
    """Start a node's containerd; `start_kubelet` follows when its images are imported."""
    folder = NODES / name
    index = _take_index(name)
    network.add_node_address(index)
    cgroups.make(name)
    configuration = write(
        folder / "containerd.toml", _containerd_settings(folder, network.write_cni(folder / "cni", index))
    )
    home = programs.folder("containerd")
    processes.start(
        f"containerd-{name}",
        [home / "containerd", "--config", configuration],
        part=name,
        # containerd finds its shim on the PATH.
        environment={"PATH": f"{home}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    wait_for(lambda: _answers(socket_path(name)), f"containerd-{name}", f"containerd of {name}", 60)


def start_kubelet(name: str) -> None:
    """Start a node's kubelet, which registers the node."""
    folder = NODES / name
    index = int((folder / "index").read_text())
    identity = write_kubeconfig(folder / "kubeconfig", f"system:node:{name}", ["system:nodes"])
    processes.start(
        f"kubelet-{name}",
        [
            programs.program(versions.current()),
            "kubelet",
            f"--config={write(folder / 'kubelet.yaml', _kubelet_settings(name, index))}",
            f"--kubeconfig={identity}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'pki'}",
            f"--hostname-override={name}",
            f"--node-ip={network.node_address(index)}",
        ],
        part=name,
    )


def kill(name: str) -> None:
    """Kill every process of the node at once, as a power cut does: the API server is not informed."""
    processes.stop([f"kubelet-{name}", f"containerd-{name}"], now=True)
    left_behind = [
        _shim_socket(path) for path in (NODES / name / "run").glob("io.containerd.runtime.v2.task/*/*")
    ]
    cgroups.kill(name)
    processes.sweep(name)
    for path in left_behind:
        if path:
            path.unlink(missing_ok=True)


def remove(name: str) -> None:
    """Kill a node and remove everything of it from this machine."""
    kill(name)
    unmount_below(NODES / name)
    cgroups.remove(name)
    if CONTAINER_LINKS.is_dir():
        for link in CONTAINER_LINKS.iterdir():
            if link.is_symlink() and link.readlink().is_relative_to(NODES / name):
                link.unlink(missing_ok=True)
    discard(NODES / name)


def _take_index(name: str) -> int:
    path = NODES / name / "index"
    with held(NODES / ".lock"):
        if not path.exists():
            taken = {int(other.read_text()) for other in NODES.glob("*/index")}
            write(path, str(next(number for number in range(1, 250) if number not in taken)))
    return int(path.read_text())


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(str(path))
        return True
    return False


def _shim_socket(bundle: Path) -> Path | None:
    """The socket of a container's shim, which is outside the node's folder; a file in the bundle names it."""
    with suppress(OSError, ValueError, KeyError):
        note = json.loads((bundle / "bootstrap.json").read_text())["address"]
        return Path(str(note).removeprefix("unix://"))
    return None


def _containerd_settings(folder: Path, cni: Path) -> str:
    return f"""\
version = 3
root = '{folder}/containerd'
state = '{folder}/run'

[grpc]
address = '{folder}/containerd.sock'

[ttrpc]
address = '{folder}/containerd.sock.ttrpc'

[plugins.'io.containerd.internal.v1.opt']
path = '{folder}/opt'

[plugins.'io.containerd.nri.v1.nri']
# Its socket has one path for the whole machine, and two nodes that start at once would both use it.
disable = true

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{reference(SANDBOX)}'

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = '{STATE}/registries'

[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE runc may not lower the score and fails with a message that does not say so.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{CNI_PLUGINS}']
conf_dir = '{cni}'
"""


def _kubelet_settings(name: str, index: int) -> str:
    folder = NODES / name
    address = network.node_address(index)
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": address,
            "healthzBindAddress": address,
            "containerRuntimeEndpoint": f"unix://{socket_path(name)}",
            "authentication": {
                "x509": {"clientCAFile": str(AUTHORITY)},
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroups.kubelet_root(name),
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            # All nodes and other programs share the machine's disk: never evict because of it.
            "evictionHard": {
                "memory.available": "0%",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.available": "0%",
            },
            "imageGCHighThresholdPercent": 100,
            # An imported image that was also pulled under another name would be pulled again to check the
            # pod's credentials; there is no registry to pull it from.
            "imagePullCredentialsVerificationPolicy": "NeverVerify",
            "clusterDNS": [network.GATEWAY],
            "clusterDomain": "cluster.local",
            "resolvConf": str(write(STATE / "resolv.conf", f"nameserver {network.GATEWAY}\n")),
            "podLogsDir": str(folder / "logs"),
            "volumePluginDir": str(folder / "plugins"),
            # Shorter than usual, as NODE_SILENCE of the control plane.
            "nodeLeaseDurationSeconds": 12,
            "nodeStatusUpdateFrequency": "4s",
            "maxPods": 100,
            "shutdownGracePeriod": "0s",
        },
        sort_keys=False,
    )
