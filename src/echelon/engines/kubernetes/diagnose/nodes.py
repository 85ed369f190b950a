"""Which labels, taints and sizes of the nodes keep a pod away, by the scheduler's own rules. Pure.

The scheduler's message only counts nodes; the nodes themselves, where the user may list them, show which
taint and which label it is."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.pods import Expression, Pod, Toleration
from echelon.engines.kubernetes.quantities import amount_of
from echelon.engines.kubernetes.state.workers import worker_container

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def untolerated(pod: Pod, nodes: Sequence[shapes.Node]) -> list[shapes.Taint]:
    """The taints that the pod does not tolerate, each once."""
    found: list[shapes.Taint] = []
    for taint in (each for node in nodes for each in node.spec.taints):
        tolerated = any(_tolerates(each, taint) for each in pod.spec.tolerations)
        away = taint.effect in _KEEPS_AWAY and not tolerated
        if away and taint not in found:
            found.append(taint)
    return found


def capacity(node: shapes.Node, resource: str) -> int:
    """The allocatable amount of a node's resource, in thousandths."""
    return amount_of(node.status.allocatable.get(resource, "0"))


def large_enough(pod: Pod, nodes: Sequence[shapes.Node]) -> list[shapes.Node]:
    """The nodes that could hold the pod if they were empty."""
    resources = worker_container(pod.spec).resources
    asked = (resources.limits or {}) | (resources.requests or {})
    return [
        node
        for node in nodes
        if all(capacity(node, name) >= amount_of(amount) for name, amount in asked.items())
    ]


def product_trouble(pod: Pod, nodes: Sequence[shapes.Node]) -> tuple[str, str] | None:
    """A clause and hint if no node has a GPU of the requested model; None if one has."""
    wanted = [each for each in _expressions(pod) if each.key == names.GPU_PRODUCT]
    if not wanted or any(_has(node, wanted[0]) for node in nodes):
        return None
    models = (node.metadata.labels.get(names.GPU_PRODUCT) for node in nodes)
    there = sorted({each for each in models if each is not None})
    asked = " or ".join(wanted[0].values or ["the one asked for"])
    hint = (
        f"change --gpu-type; there are: {', '.join(there)}"
        if there
        else "no node has any GPU; leave out --gpu-type"
    )
    return f"no node has a GPU of model {asked}", hint


def no_such_label(pod: Pod, nodes: Sequence[shapes.Node]) -> str | None:
    """A label that the pod requires and no node has, as KEY=VALUE."""
    for key, value in pod.spec.node_selector.items():
        if not any(node.metadata.labels.get(key) == value for node in nodes):
            return f"{key}={value}"
    for each in _expressions(pod):
        if each.operator == "In" and not any(_has(node, each) for node in nodes):
            return f"{each.key}={'|'.join(each.values)}"
    return None


def _tolerates(toleration: Toleration, taint: shapes.Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def _expressions(pod: Pod) -> tuple[Expression, ...]:
    """The label expressions that a node must match, where the pod leaves no choice."""
    required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms
    return terms[0].match_expressions if len(terms) == 1 else ()


def _has(node: shapes.Node, expression: Expression) -> bool:
    return node.metadata.labels.get(expression.key) in expression.values
