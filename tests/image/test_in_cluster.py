"""A built image in the real cluster: pulled from a real registry, or imported from a file."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl
from testbed.node import socket_path
from tests.image.wheel_files import make_wheel

from testbed import images, programs, registry

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# Of Debian trixie, which the testbed's image is made from; its configuration does not say so.
PYTHON = "3.13"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 12345,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def base(own_cluster: Target) -> str:
    """The testbed's image of Debian and Python, as a file."""
    assert own_cluster.ours
    return f"oci-archive:{images.build('python')}"


def run_pod(namespace: Kubectl, image: str, command: list[str], *, node: str = "", **more: object) -> str:
    """Run a command in an image, and answer what it printed."""
    container = {"name": "main", "image": image, "command": command, "securityContext": RESTRICTED, **more}
    spec = {"restartPolicy": "Never", "containers": [container], **({"nodeName": node} if node else {})}
    namespace.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "built"}, "spec": spec})
    namespace.wait_for(lambda: ended(namespace), "the pod to end")
    assert namespace.get("pod", "built")["status"]["phase"] == "Succeeded", namespace("logs", "built")
    return namespace("logs", "built")


def ended(namespace: Kubectl) -> bool:
    return namespace.get("pod", "built")["status"]["phase"] in ("Succeeded", "Failed")


def test_a_pod_runs_the_project_with_its_packages(
    own_cluster: Target,
    namespace: Kubectl,
    base: str,
    project: Path,
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.kubectl.kubeconfig))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "extra", commands=["extra-cli"])
    for name in ("UV", "PIP"):
        monkeypatch.setenv(f"{name}_NO_INDEX", "1")
        monkeypatch.setenv(f"{name}_FIND_LINKS", str(wheels))
    address = registry.start()
    repository = f"{address}/image-test/{secrets.token_hex(4)}"
    words = ["--pip", "extra", "--python", PYTHON, "--on", "k8s", "--plain-http", address]
    (project / "train.py").write_text(
        "import os, package, extra\nprint(package.GREETING, extra.VERSION, os.getcwd())\n"
    )
    # First onto the archive, then the same onto an image that lies in the registry.
    plain = call(
        "image",
        "build",
        str(project),
        "--base",
        base,
        "--push",
        f"{repository}/base:1",
        "--plain-http",
        address,
    )
    assert plain.returncode == 0, plain.stderr
    pushed = call(
        "image",
        "build",
        str(project),
        "--base",
        f"{repository}/base:1",
        "--push",
        f"{repository}/built:1",
        *words,
    )
    assert pushed.returncode == 0, pushed.stderr
    assert "mounted" in pushed.stderr

    program = "python3 train.py && extra-cli && ./run.sh && id -u"
    said = run_pod(namespace, pushed.stdout.strip(), ["sh", "-c", program])
    assert said.splitlines() == ["hello 1.0 /workspace", "extra 1.0", "hello 1.0 /workspace", "12345"]


def test_an_archive_is_imported_by_the_container_runtime(
    own_cluster: Target, namespace: Kubectl, base: str, project: Path, real_nodes: list[str], call: Call
) -> None:
    name = f"docker.io/image-test/{secrets.token_hex(4)}:1"
    done = call(
        "image", "build", str(project), "--base", base, "--to", "image.tar", "--name", name, "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    node = real_nodes[0]
    ctr: list[str | Path] = [
        programs.program("containerd", "ctr"),
        "--address",
        str(socket_path(node)),
        "--namespace",
        "k8s.io",
        "images",
    ]
    subprocess.run([*ctr, "import", "image.tar"], check=True, capture_output=True)
    try:
        listed = subprocess.run(
            [*ctr, "list", f"name=={name}"], check=True, capture_output=True, text=True
        ).stdout
        assert json.loads(done.stdout)["digest"] in listed
        said = run_pod(namespace, name, ["./run.sh"], node=node, imagePullPolicy="Never")
        assert said == "hello\n"
    finally:
        subprocess.run([*ctr, "rm", name], check=True, capture_output=True)
