"""A real image registry on the pod network, for tests that push and pull; started on demand."""

from __future__ import annotations

import http.client
import subprocess

import yaml

from testbed import processes, programs
from testbed.controlplane import wait_for
from testbed.images import build, load, reference
from testbed.network import GATEWAY
from testbed.node import socket_path
from testbed.paths import STATE, write

ADDRESS = f"{GATEWAY}:5000"


def start() -> str:
    """Start the registry unless it runs; returns its address."""
    record = processes.read("registry")
    if record is None or not processes.is_alive(record):
        # containerd would insist on TLS; it reads this folder at every pull, so no restart is needed.
        write(STATE / "registries" / ADDRESS / "hosts.toml", f'server = "http://{ADDRESS}"\n')
        settings = {
            "version": 0.1,
            "storage": {
                "filesystem": {"rootdirectory": str(STATE / "registry")},
                "delete": {"enabled": True},
            },
            "http": {"addr": ADDRESS},
            "log": {"level": "warn"},
        }
        processes.start(
            "registry",
            [programs.program("registry"), "serve", write(STATE / "registry.yaml", yaml.safe_dump(settings))],
        )
        wait_for(_answers, "registry", "the registry", 30)
    return ADDRESS


def push(name: str, node: str) -> str:
    """Push one of the testbed's images; returns the name under which it can be pulled."""
    start()
    build(name)
    load(name, node)
    ctr = [
        str(programs.program("containerd", "ctr")),
        "--address",
        str(socket_path(node)),
        "--namespace",
        "k8s.io",
        "images",
    ]
    target = f"{ADDRESS}/testbed/{name}:1"
    subprocess.run([*ctr, "push", "--plain-http", target, reference(name)], capture_output=True, check=True)
    return target


def _answers() -> bool:
    connection = http.client.HTTPConnection(ADDRESS, timeout=2)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
