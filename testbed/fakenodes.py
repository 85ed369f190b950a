"""Thousands of nodes that exist in the API only; kwok keeps them Ready and marks their pods as running."""

from __future__ import annotations

from testbed import controllers, gpus
from testbed.api import Api, Object

SELECTOR = "testbed/fake=true"
_PATH = "/api/v1/nodes"


def add(
    count: int,
    *,
    gpus_each: int = 8,
    model: str = "NVIDIA-A100-SXM4-80GB",
    first: int = 0,
    racks: int = 10,
    tainted: bool = False,
) -> list[str]:
    """Add fake nodes and return their names; kwok is started if it does not run.

    Tainted ones (key `testbed/fake`) take only the pods that tolerate it.
    """
    controllers.start("kwok")
    made = [_node(number, gpus_each, model, number % racks) for number in range(first, first + count)]
    if tainted:
        for node in made:
            node["spec"] = {"taints": [{"key": SELECTOR.partition("=")[0], "effect": "NoSchedule"}]}
    with Api("testbed:fake-nodes") as api:
        for node in made:
            status, answer = api.call("POST", _PATH, node)
            if status not in (201, 409):
                raise ConnectionError(f"making {node['metadata']['name']}: {answer.get('message')}")
    return [str(node["metadata"]["name"]) for node in made]


def remove() -> None:
    """Remove every fake node, and their pods first: once a node is gone nobody confirms that its pods ended,
    and the cluster takes minutes to give them up.
    """
    with Api("testbed:fake-nodes") as api:
        selected = f"{_PATH}?labelSelector={SELECTOR.replace('=', '%3D').replace('/', '%2F')}"
        fake = {node["metadata"]["name"] for node in api.items(selected)}
        for pod in api.items("/api/v1/pods"):
            if pod["spec"].get("nodeName") in fake:
                about = pod["metadata"]
                path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
                api.call("DELETE", f"{path}?gracePeriodSeconds=0")
        api.call("DELETE", selected)  # all of them at once


def _node(number: int, gpus_each: int, model: str, rack: int) -> Object:
    name = f"fake-{number:04d}"
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    if gpus_each:
        room[gpus.RESOURCE] = str(gpus_each)
    key, value = SELECTOR.split("=")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": f"zone-{rack}",
                key: value,
                **(gpus.labels(gpus_each, model) if gpus_each else {}),
            },
        },
        "status": {"capacity": room, "allocatable": room},
    }
