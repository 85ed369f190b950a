"""Packages that a run asks for, from an index inside the cluster; and one that cannot be reached."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.faults.kubernetes.terminal import Terminal
from tests.image.wheel_files import make_wheel
from tests.testbed import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

USES = "import tiny\nprint('tiny is', tiny.VERSION)\n"


def serve_index(kubectl: Kubectl, image: str, wheel: Path) -> str:
    """A pod that serves one package as an index does; its address."""
    page = f'<a href="{wheel.name}">{wheel.name}</a>'
    kubectl.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "index"},
            "data": {"page": page},
            "binaryData": {"wheel": base64.b64encode(wheel.read_bytes()).decode()},
        }
    )
    files = [
        {"key": "page", "path": "simple/tiny/index.html"},
        {"key": "wheel", "path": f"simple/tiny/{wheel.name}"},
    ]
    pod = manifests.pod(
        "index",
        image,
        "import http.server, os; os.chdir('/index'); http.server.test(http.server.SimpleHTTPRequestHandler)",
        volumes=[{"name": "index", "configMap": {"name": "index", "items": files}}],
    )
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "index", "mountPath": "/index"}]
    kubectl.create(pod)
    manifests.wait_phase(kubectl, "index", "Running")
    return str(kubectl.get("pod", "index")["status"]["podIP"])


def test_from_an_index_in_the_cluster(terminal: Terminal, tmp_path: Path) -> None:
    """The image has no pip; what is installed is told, and every worker has it."""
    address = serve_index(terminal.kubectl, terminal.image, make_wheel(tmp_path, "tiny", "1.2"))
    terminal.write("uses.py", USES)
    index = ("--env", f"PIP_INDEX_URL=http://{address}:8000/simple", "--env", f"PIP_TRUSTED_HOST={address}")
    command = terminal.train("packed", "-n", "2", "--pip", "tiny>=1", *index, "uses.py")
    assert command.wait() == 0, command
    told = [line for line in command.lines if "tiny is" in line]
    assert sorted(told) == ["[0] tiny is 1.2", "[1] tiny is 1.2"]
    assert command.said.count("installing packages: tiny>=1") == 2
    assert "Successfully installed tiny-1.2" in terminal.read("packed", "logs/pip-worker-1.log")
    terminal.check_removal("packed")


def test_an_index_that_cannot_be_reached(terminal: Terminal) -> None:
    terminal.write("uses.py", USES)
    index = ("--env", "PIP_INDEX_URL=http://127.0.0.1:9/simple", "--env", "PIP_RETRIES=1")
    command = terminal.train("unpacked", "--restarts", "3", "--pip", "tiny", *index, "uses.py")
    assert command.wait() == 119, command
    assert "the package index cannot be reached from there" in command.said, command
    status = terminal.status("unpacked")
    assert (status["state"], status["restarts"]) == ("failed", 0)
    assert "PIP_INDEX_URL" in status["reason"]
    terminal.check_removal("unpacked")
