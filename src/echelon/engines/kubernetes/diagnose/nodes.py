"""Which labels, taints and sizes of the nodes keep a pod away, by the scheduler's own rules. Pure.

The scheduler's message only counts nodes; the nodes themselves, where the user may list them, show which
taint and which label it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.quantities import amount_of
from echelon.engines.kubernetes.state.workers import worker_container

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def untolerated(pod: Object, nodes: Sequence[Object]) -> list[Mapping[str, Any]]:
    """The taints that the pod does not tolerate, each once."""
    tolerations = (pod.get("spec") or {}).get("tolerations") or []
    found: list[Mapping[str, Any]] = []
    for node in nodes:
        for taint in (node.get("spec") or {}).get("taints") or []:
            plain = {key: taint[key] for key in ("key", "value", "effect") if taint.get(key)}
            away = taint.get("effect") in _KEEPS_AWAY and not any(
                _tolerates(each, taint) for each in tolerations
            )
            if away and plain not in found:
                found.append(plain)
    return found


def capacity(node: Object, resource: str) -> int:
    """The allocatable amount of a node's resource, in thousandths."""
    return amount_of(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0"))


def large_enough(pod: Object, nodes: Sequence[Object]) -> list[Object]:
    """The nodes that could hold the pod if they were empty."""
    resources = worker_container(pod.get("spec") or {}).get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return [
        node
        for node in nodes
        if all(capacity(node, name) >= amount_of(amount) for name, amount in asked.items())
    ]


def product_trouble(pod: Object, nodes: Sequence[Object]) -> tuple[str, str] | None:
    """A clause and hint if no node has a GPU of the requested model; None if one has."""
    wanted = [each for each in _expressions(pod) if each.get("key") == names.GPU_PRODUCT]
    if not wanted or any(_has(node, wanted[0]) for node in nodes):
        return None
    there = sorted(
        {str(_labels(node)[names.GPU_PRODUCT]) for node in nodes if names.GPU_PRODUCT in _labels(node)}
    )
    asked = " or ".join(wanted[0].get("values") or ["the one asked for"])
    hint = (
        f"change --gpu-type; there are: {', '.join(there)}"
        if there
        else "no node has any GPU; leave out --gpu-type"
    )
    return f"no node has a GPU of model {asked}", hint


def no_such_label(pod: Object, nodes: Sequence[Object]) -> str | None:
    """A label that the pod requires and no node has, as KEY=VALUE."""
    for key, value in ((pod.get("spec") or {}).get("nodeSelector") or {}).items():
        if not any(_labels(node).get(key) == value for node in nodes):
            return f"{key}={value}"
    for each in _expressions(pod):
        if each.get("operator") == "In" and not any(_has(node, each) for node in nodes):
            return f"{each['key']}={'|'.join(each.get('values') or [])}"
    return None


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _expressions(pod: Object) -> Iterator[Mapping[str, Any]]:
    """The label expressions that a node must match, where the pod leaves no choice."""
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get(
        "nodeSelectorTerms"
    ) or []
    if len(terms) == 1:
        yield from terms[0].get("matchExpressions") or []


def _has(node: Object, expression: Mapping[str, Any]) -> bool:
    return _labels(node).get(expression.get("key")) in (expression.get("values") or [])


def _labels(node: Object) -> Mapping[Any, Any]:
    found: Mapping[Any, Any] = node["metadata"].get("labels") or {}
    return found
