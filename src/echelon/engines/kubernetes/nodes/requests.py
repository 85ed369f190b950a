"""How much of a node a pod takes, by the scheduler's own arithmetic. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from echelon.engines.kubernetes.quantities import amount_of
from echelon.engines.kubernetes.shapes import Amounts, Container, PodSpec, Requirements

Sums = dict[str, int]  # of each resource, thousandths


def pod_requests(spec: PodSpec) -> Sums:
    """What the scheduler reserves for a pod.

    Containers run side by side, together with the init containers that are restarted; the other init
    containers run before them one by one, each beside the restarted ones listed before it. A request of the
    pod as a whole replaces that sum. The pod's overhead is added."""
    beside: Sums = {}
    peak: Sums = {}
    for container in spec.init_containers or ():
        asked = _asked(container.resources)
        if container.restart_policy == "Always":
            _add(beside, asked)
            _raise_to(peak, beside)
        else:
            _raise_to(peak, _sum((beside, asked)))
    total = _sum((beside, _together(spec.containers or ())))
    _raise_to(total, peak)
    if spec.resources is not None:
        total |= _asked(spec.resources)
    _add(total, _read(spec.overhead))
    return total


def _together(containers: Iterable[Container]) -> Sums:
    return _sum(_asked(container.resources) for container in containers)


def _asked(resources: Requirements) -> Sums:
    """A limit without a request is a request too; the API server does not fill it in for Job templates."""
    return _read(resources.limits) | _read(resources.requests)


def _read(amounts: Amounts | None) -> Sums:
    return {name: amount_of(amount) for name, amount in (amounts or {}).items()}


def _sum(parts: Iterable[Sums]) -> Sums:
    total: Sums = {}
    for part in parts:
        _add(total, part)
    return total


def _add(total: Sums, more: Sums) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Sums, least: Sums) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)
