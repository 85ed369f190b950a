"""A thousand nodes with eight GPUs each, on one small machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl
from tests.testbed import manifests

from testbed import processes

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

GIB = 1024**3


@pytest.mark.soak  # tests/engines/kubernetes/nodes/test_cluster_view.py makes as many, and counts them
def test_a_thousand_fake_nodes_are_listed_and_cost_little(
    own_cluster: Target, fake_nodes: Callable[..., list[str]], record_property: Callable[[str, object], None]
) -> None:
    kubectl = own_cluster.kubectl
    names = fake_nodes(1000, gpus_each=8)
    began = time.monotonic()
    listed = kubectl.items("nodes", "-l", "testbed/fake=true")
    record_property("seconds to list 1000 nodes", round(time.monotonic() - began, 2))
    assert {item["metadata"]["name"] for item in listed} == set(names)
    assert sum(int(item["status"]["allocatable"]["nvidia.com/gpu"]) for item in listed) == 8000
    memory = sum(resident(record.pid) for record in processes.recorded())
    record_property("memory of the cluster in GiB", round(memory / GIB, 2))
    assert memory < 4 * GIB


def test_pods_on_fake_nodes_run_in_name(
    namespace: Kubectl, fake_nodes: Callable[..., list[str]], image: Callable[[str], str]
) -> None:
    fake_nodes(3, gpus_each=8)
    wants = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    for number in range(3):
        namespace.create(manifests.pod(f"big-{number}", image("python"), manifests.SLEEP, container=wants))
    nodes = {
        manifests.wait_phase(namespace, f"big-{number}", "Running")["spec"]["nodeName"] for number in range(3)
    }
    assert len(nodes) == 3


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0
