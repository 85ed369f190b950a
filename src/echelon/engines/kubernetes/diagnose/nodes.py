"""Which labels, taints and sizes of the nodes keep a pod away, by the scheduler's own rules. Pure.

The scheduler's message only counts nodes; the nodes themselves, where the user may list them, show which
taint and which label it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.quantities import amount_of
from echelon.engines.kubernetes.state.workers import worker_container

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def untolerated(pod: Object, nodes: Sequence[shapes.Node]) -> list[shapes.Taint]:
    """The taints that the pod does not tolerate, each once."""
    tolerations = (pod.get("spec") or {}).get("tolerations") or []
    found: list[shapes.Taint] = []
    for taint in (each for node in nodes for each in node.spec.taints):
        away = taint.effect in _KEEPS_AWAY and not any(_tolerates(each, taint) for each in tolerations)
        if away and taint not in found:
            found.append(taint)
    return found


def capacity(node: shapes.Node, resource: str) -> int:
    """The allocatable amount of a node's resource, in thousandths."""
    return amount_of(node.status.allocatable.get(resource, "0"))


def large_enough(pod: Object, nodes: Sequence[shapes.Node]) -> list[shapes.Node]:
    """The nodes that could hold the pod if they were empty."""
    resources = worker_container(pod.get("spec") or {}).get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return [
        node
        for node in nodes
        if all(capacity(node, name) >= amount_of(amount) for name, amount in asked.items())
    ]


def product_trouble(pod: Object, nodes: Sequence[shapes.Node]) -> tuple[str, str] | None:
    """A clause and hint if no node has a GPU of the requested model; None if one has."""
    wanted = [each for each in _expressions(pod) if each.get("key") == names.GPU_PRODUCT]
    if not wanted or any(_has(node, wanted[0]) for node in nodes):
        return None
    models = (node.metadata.labels.get(names.GPU_PRODUCT) for node in nodes)
    there = sorted({each for each in models if each is not None})
    asked = " or ".join(wanted[0].get("values") or ["the one asked for"])
    hint = (
        f"change --gpu-type; there are: {', '.join(there)}"
        if there
        else "no node has any GPU; leave out --gpu-type"
    )
    return f"no node has a GPU of model {asked}", hint


def no_such_label(pod: Object, nodes: Sequence[shapes.Node]) -> str | None:
    """A label that the pod requires and no node has, as KEY=VALUE."""
    for key, value in ((pod.get("spec") or {}).get("nodeSelector") or {}).items():
        if not any(node.metadata.labels.get(key) == value for node in nodes):
            return f"{key}={value}"
    for each in _expressions(pod):
        if each.get("operator") == "In" and not any(_has(node, each) for node in nodes):
            return f"{each['key']}={'|'.join(each.get('values') or [])}"
    return None


def _tolerates(toleration: Mapping[str, Any], taint: shapes.Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    if toleration.get("key") and toleration["key"] != taint.key:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == taint.value


def _expressions(pod: Object) -> Iterator[Mapping[str, Any]]:
    """The label expressions that a node must match, where the pod leaves no choice."""
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get(
        "nodeSelectorTerms"
    ) or []
    if len(terms) == 1:
        yield from terms[0].get("matchExpressions") or []


def _has(node: shapes.Node, expression: Mapping[str, Any]) -> bool:
    return node.metadata.labels.get(expression["key"]) in (expression.get("values") or [])
