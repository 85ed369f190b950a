"""What the testbed adds on demand: a registry to push to and pull from, and controllers by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl, Refused
from testbed.paths import LOGS
from tests.testbed import manifests

from testbed import controllers, registry

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_an_image_is_pushed_and_pulled(
    own_cluster: Target, namespace: Kubectl, real_nodes: list[str]
) -> None:
    assert own_cluster.ours
    pushed = registry.push("python", real_nodes[0])
    pod = manifests.pod(
        "pulled", pushed, "print('pulled')", nodeSelector={"kubernetes.io/hostname": real_nodes[1]}
    )
    namespace.create(pod)
    manifests.wait_phase(namespace, "pulled", "Succeeded")
    assert namespace("logs", "pulled").strip() == "pulled"


def test_the_training_operator_runs_a_pytorch_job(
    own_cluster: Target, namespace: Kubectl, image: Callable[[str], str]
) -> None:
    assert own_cluster.ours
    image("nslookup")
    program = (
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1); dist.all_reduce(total); print('total', total.item())\n"
        "dist.destroy_process_group()\n"
    )
    container = {"name": "pytorch", "image": image("torch"), "command": ["python3", "-c", program]}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "sum"},
        "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}},
    }
    with controllers.using("training-operator"):
        namespace.create(job)
        try:
            namespace.wait_for(
                lambda: manifests.conditions(namespace.get("pytorchjob", "sum")).get("Succeeded") == "True",
                "the PyTorchJob",
                patience=300,
            )
            assert "total 2.0" in namespace("logs", "sum-master-0")
        except Refused:
            print(namespace("get", "pods", "-o", "wide"), namespace("get", "events"), sep="\n")
            print((LOGS / "controller-training-operator.log").read_text()[-4000:])
            raise
        finally:
            namespace("delete", "pytorchjob", "sum")
