"""What a container requests, as settings: GPUs, CPUs, memory and other devices. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from echelon.kubeflow.nodes import Node, fields, note, refuse, text
from echelon.values import frozen

GPU = "nvidia.com/gpu"


@frozen
class Needs:
    """The requests of one worker, as `--cpus`, `--memory`, `--gpus` and `--resource` take them."""

    gpus: int = 0
    cpus: str | None = None
    memory: str | None = None
    resource: Mapping[str, int] = field(default_factory=dict)


def read_needs(node: Node | None, notes: list[str]) -> Needs:
    """Read `resources`. A limit without a request is both, as in Kubernetes."""
    if node is None:
        return Needs()
    parts = fields(node, ("requests", "limits", "claims"))
    if "claims" in parts:
        notes.append(note(parts["claims"], "claims of devices are not passed on"))
    requests = fields(parts["requests"]) if "requests" in parts else {}
    limits = fields(parts["limits"]) if "limits" in parts else {}
    devices: dict[str, int] = {}
    for name in dict.fromkeys((*limits, *requests)):
        if name in ("cpu", "memory"):
            continue
        given = limits.get(name) or requests[name]
        if name == "ephemeral-storage" or name.startswith("hugepages-"):
            notes.append(note(given, "cannot be requested by a run"))
            continue
        amount = text(given)
        if not amount.isdecimal():
            raise refuse(given, "is not a whole number", "a device is requested by number, as in 1")
        if int(amount):
            devices[name] = int(amount)
    return Needs(
        gpus=devices.pop(GPU, 0),
        cpus=_amount("cpu", requests, limits),
        memory=_amount("memory", requests, limits),
        resource=devices,
    )


def _amount(name: str, requests: Mapping[str, Node], limits: Mapping[str, Node]) -> str | None:
    """REQUEST or REQUEST:LIMIT."""
    request, limit = requests.get(name) or limits.get(name), limits.get(name)
    if request is None:
        return None
    return text(request) if limit is None else f"{text(request)}:{text(limit)}"
