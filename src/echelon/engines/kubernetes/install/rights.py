"""What the manager may do, verb by verb, and what each right is for.

It creates and deletes nothing and reads no Secret. RBAC knows no labels, so a right to a kind of object is
one to all objects of it; that is why it reads single ConfigMaps, which it knows by the names of runs, and may
not list them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echelon.engines.kubernetes import names
from echelon.values import frozen


@frozen
class Right:
    """Verbs on one resource; on the objects of these names only, where there are any."""

    group: str
    resource: str  # as RBAC names it: pods/status
    verbs: tuple[str, ...]
    use: str
    only: tuple[str, ...] = ()


IN_CLUSTER = (
    Right(group="", resource="nodes", verbs=("list",), use="what there is, and what is free"),
    Right(group="", resource="pods", verbs=("list",), use="what is free; whether a gang is whole"),
    Right(group="", resource="pods/status", verbs=("patch",), use="free the pod of a dead node"),
    Right(group="", resource="configmaps", verbs=("get",), use="a queued run's record"),
    Right(group="", resource="namespaces", verbs=("get",), use="the priority that a namespace allows"),
    Right(group="batch", resource="jobs", verbs=("list", "patch"), use="the queue; start, roll back"),
)
"""In all namespaces."""

IN_OWN = (
    Right(
        group="coordination.k8s.io",
        resource="leases",
        verbs=("get", "patch"),
        use="one replica decides at a time",
        only=(names.MANAGER_LEASE,),
    ),
)
"""In the manager's own namespace."""

OF_EVERYBODY = (
    Right(
        group="coordination.k8s.io",
        resource="leases",
        verbs=("get",),
        use="whether a manager runs",
        only=(names.MANAGER_LEASE,),
    ),
)
"""What every user of the cluster may do in the manager's namespace."""


def to_rules(rights: tuple[Right, ...]) -> list[Mapping[str, Any]]:
    """Rights as the rules of a Role."""
    return [
        {
            "apiGroups": [right.group],
            "resources": [right.resource],
            **({"resourceNames": list(right.only)} if right.only else {}),
            "verbs": list(right.verbs),
        }
        for right in rights
    ]
