"""Volumes of the testbed: what is not shared is really not shared, and what is, is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl, Object
from tests.testbed import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WRITE = "open('/data/note', 'a').write('written\\n')"
READ = "print(open('/data/note').read())"


def claim(name: str, mode: str, storage_class: str | None = None) -> Object:
    spec: Object = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def mounting(name: str, image: str, program: str, claimed: str, node: str = "") -> Object:
    where = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return manifests.pod(
        name,
        image,
        program,
        container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}],
        **where,
    )


def test_a_claim_of_the_default_class_binds_to_a_folder_of_one_node(
    namespace: Kubectl, image: Callable[[str], str], real_nodes: list[str]
) -> None:
    namespace.create(
        claim("mine", "ReadWriteOnce"), mounting("writer", image("python"), WRITE, "mine", real_nodes[0])
    )
    manifests.wait_phase(namespace, "writer", "Succeeded")
    namespace.create(mounting("elsewhere", image("python"), READ, "mine", real_nodes[1]))
    namespace.create(mounting("reader", image("python"), READ, "mine"))
    assert manifests.wait_phase(namespace, "reader", "Succeeded")["spec"]["nodeName"] == real_nodes[0]
    assert "written" in namespace("logs", "reader")
    assert manifests.conditions(namespace.get("pod", "elsewhere"))["PodScheduled"] == "False"


def test_a_shared_claim_is_seen_from_both_nodes(
    own_cluster: Target, namespace: Kubectl, image: Callable[[str], str], real_nodes: list[str]
) -> None:
    assert own_cluster.ours
    namespace.create(claim("ours", "ReadWriteMany", "shared"))
    for number, node in enumerate(real_nodes[:2]):
        namespace.create(mounting(f"writer-{number}", image("python"), WRITE, "ours", node))
        manifests.wait_phase(namespace, f"writer-{number}", "Succeeded")
    namespace.create(mounting("reader", image("python"), READ, "ours", real_nodes[0]))
    manifests.wait_phase(namespace, "reader", "Succeeded")
    assert namespace("logs", "reader").count("written") == 2


def test_a_deleted_claim_leaves_no_volume(own_cluster: Target, namespace: Kubectl) -> None:
    namespace.create(claim("gone", "ReadWriteMany", "shared"))
    namespace.wait_for(
        lambda: namespace.get("pvc", "gone")["status"]["phase"] == "Bound", "the claim to be bound"
    )
    volume = namespace.get("pvc", "gone")["spec"]["volumeName"]
    namespace("delete", "pvc", "gone")
    kubectl = own_cluster.kubectl
    kubectl.wait_for(lambda: kubectl.find("pv", volume) is None, "the volume to be gone")


def test_the_default_class_refuses_to_share_and_says_so(
    own_cluster: Target, namespace: Kubectl, image: Callable[[str], str]
) -> None:
    assert own_cluster.ours
    namespace.create(claim("wide", "ReadWriteMany"), mounting("waiting", image("python"), READ, "wide"))

    def told() -> list[str]:
        return [
            item["message"] for item in namespace.items("events") if item["reason"] == "ProvisioningFailed"
        ]

    namespace.wait_for(told, "the provisioner's word")
    assert "ReadWriteOnce only" in told()[0]
