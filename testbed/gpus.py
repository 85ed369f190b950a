"""GPUs that the scheduler counts as real, on nodes that have none.

Resource, labels and taint have the names of NVIDIA's device plugin and feature discovery, so that code which
reads them in a test reads them in a real cluster too.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.kubectl import Kubectl

RESOURCE = "nvidia.com/gpu"
TAINT = {"key": RESOURCE, "value": "present", "effect": "NoSchedule"}
# Feature discovery's label values: product, memory in MiB, architecture.
MODELS = {
    "NVIDIA-A100-SXM4-80GB": (81920, "ampere", "8", "0"),
    "NVIDIA-H100-80GB-HBM3": (81559, "hopper", "9", "0"),
    "NVIDIA-H200": (143771, "hopper", "9", "0"),
    "NVIDIA-L4": (23034, "ada-lovelace", "8", "9"),
    "Tesla-T4": (15360, "turing", "7", "5"),
}


def labels(count: int, model: str) -> dict[str, str]:
    """The labels of a node with GPUs, as feature discovery sets them."""
    memory, family, major, minor = MODELS[model]
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.product": model,
        "nvidia.com/gpu.memory": str(memory),
        "nvidia.com/gpu.family": family,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true" if memory > 30000 else "false",
    }


def give(
    kubectl: Kubectl, node: str, count: int, *, model: str = "NVIDIA-A100-SXM4-80GB", taint: bool = False
) -> None:
    """Give a node GPUs of a model; with a taint, only pods that tolerate it run there."""
    kubectl.patch(
        "node",
        node,
        {"metadata": {"labels": labels(count, model)}, "spec": {"taints": [TAINT] if taint else None}},
    )
    kubectl.patch("node", node, _status(str(count)), subresource="status")


def take(kubectl: Kubectl, node: str) -> None:
    """Remove a node's GPUs, with their labels and taint."""
    gone: Mapping[str, None] = dict.fromkeys(labels(0, "Tesla-T4"))
    kubectl.patch("node", node, {"metadata": {"labels": gone}, "spec": {"taints": None}})
    kubectl.patch("node", node, _status(None), subresource="status")


def holders(kubectl: Kubectl) -> list[str]:
    """The pods on real nodes that have a GPU and have not ended."""
    nodes = {item["metadata"]["name"] for item in kubectl.items("nodes", "-l", "!testbed/fake")}
    living = "--field-selector=status.phase!=Succeeded,status.phase!=Failed"
    return [
        pod["metadata"]["name"]
        for pod in kubectl.items("pods", "-A", living)
        if pod["spec"].get("nodeName") in nodes
        and any(
            RESOURCE in (each.get("resources", {}).get("limits") or {}) for each in pod["spec"]["containers"]
        )
    ]


def _status(count: str | None) -> dict[str, object]:
    return {"status": {"capacity": {RESOURCE: count}, "allocatable": {RESOURCE: count}}}
