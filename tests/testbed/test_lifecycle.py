"""Ending the cluster: nothing of it is left, after an ordinary life, a crash, or a start cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl
from testbed.paths import CHECKOUT, PROCESSES, STATE
from tests.conftest import wait_until
from tests.testbed import manifests

from testbed import cgroups, cluster, network, node, processes

pytestmark = [pytest.mark.cluster, pytest.mark.restart, pytest.mark.slow]


@pytest.fixture
def ours_to_end(own_cluster: Target) -> Iterator[None]:
    """A cluster that the tests started themselves, and that is there again for whoever comes next."""
    assert own_cluster.ours
    claim = cluster.claim()
    if not (claim and claim.for_tests):
        pytest.skip("the cluster was started by a person, not by the tests: it is not ended for a test")
    yield
    cluster.up(for_tests=True)


def what_is_left() -> list[str]:
    """Every trace of a cluster on this machine."""
    left = [
        line.split()[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if f"{STATE}/" in line
    ]
    left += [
        f"process {pid}" for pid in processes._marked(f"{processes.MARK}={STATE}/".encode(), whole=False)
    ]
    left += [str(top / cgroups.ROOT) for top in cgroups._hierarchies() if (top / cgroups.ROOT).exists()]
    left += [f"link {path.name}" for path in Path("/sys/class/net").glob(network.BRIDGE)]
    left += [
        f"link {path.parent.name}"
        for path in Path("/sys/class/net").glob("veth*/master")
        if path.resolve().name == network.BRIDGE
    ]
    tables = subprocess.run(
        ["nft", "list", "tables"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    left += [line for line in tables if line.endswith("kube-proxy")]
    if node.CONTAINER_LINKS.is_dir():
        left += [
            str(path)
            for path in node.CONTAINER_LINKS.iterdir()
            if str(path.readlink()).startswith(f"{STATE}/")
        ]
    return left + ([str(STATE)] if STATE.exists() else [])


@pytest.mark.usefixtures("ours_to_end")
def test_nothing_is_left_after_a_crash(
    namespace: Kubectl, image: Callable[[str], str], real_nodes: list[str]
) -> None:
    for name in real_nodes:
        namespace.create(
            manifests.pod(
                f"busy-{name}",
                image("python"),
                manifests.SLEEP,
                nodeSelector={"kubernetes.io/hostname": name},
            )
        )
    for name in real_nodes:
        manifests.wait_phase(namespace, f"busy-{name}", "Running")
    assert what_is_left()
    for record in processes.recorded():
        if record.name in ("kube-apiserver", "kubelet-node-a", "containerd-node-b"):
            os.kill(record.pid, signal.SIGKILL)
    cluster.down()
    assert what_is_left() == []


@pytest.mark.usefixtures("ours_to_end")
def test_a_start_that_was_cut_short_is_ended_and_can_be_repeated() -> None:
    cluster.down()
    starting = subprocess.Popen(
        [sys.executable, "-m", "testbed", "up"], cwd=CHECKOUT, stderr=subprocess.DEVNULL
    )
    wait_until((PROCESSES / "kube-apiserver.json").exists, "the API server to be started")
    starting.kill()
    starting.wait()
    claimed = cluster.claim()
    assert claimed
    assert not claimed.complete
    cluster.down()
    assert what_is_left() == []


def test_what_killed_tests_left_in_a_cluster_is_swept_and_the_rest_stays(own_cluster: Target) -> None:
    """A namespace of a test goes, with all that is in it; one that somebody made stays."""
    kubectl = own_cluster.kubectl
    for name, labels in (("test-left", {cluster.OF_TESTS: ""}), ("of-a-person", {})):
        about = {"name": name, "labels": labels}
        kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
    try:
        cluster.sweep()
        names = {item["metadata"]["name"] for item in kubectl.items("namespaces")}
        assert "of-a-person" in names
        assert "test-left" not in names
    finally:
        kubectl("delete", "namespace", "of-a-person")
