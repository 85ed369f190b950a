"""A place on a node that an object keeps for a pod of its own, and one in the queue: for all dialects."""

from __future__ import annotations

from echelon.engines.kubernetes.shapes import PodSpec
from echelon.values import frozen


@frozen
class Place:
    """A worker whose pod exists or will exist; `node` is empty where the scheduler alone chooses it, and the
    place then stands for `count` of them. `timeout` (seconds, 0 for none) and `admitted` are the run's.
    """

    namespace: str
    run: str
    pod: tuple[str, ...]  # identifies the pod within its namespace: the dialect's `pod_of`
    node: str
    spec: PodSpec
    count: int = 1
    owner: str = ""
    timeout: float = 0.0
    admitted: float = 0.0
    whole: bool = False  # all pods of its gang were seen on nodes
    made: float = 0.0  # when the API server made its object


@frozen
class InQueue:
    """A run whose objects wait to be admitted. `tried` is when a process last tried to, `again` that it was
    admitted before and rolled back, `stamp` when the API server made the object; `plan` is JSON, and
    `timeout` seconds, 0 for none.
    """

    namespace: str
    run: str
    created: float
    priority: int = 0
    tried: float = 0.0
    again: bool = False
    uid: str = ""
    stamp: float = 0.0
    owner: str = ""
    reason: str = ""
    plan: str = ""
    timeout: float = 0.0


@frozen
class InKueue:
    """A run whose objects wait for Kueue: `count` workers like this for each; `plan` is JSON, of several."""

    namespace: str
    run: str
    queue: str
    spec: PodSpec
    count: int
    plan: str = ""
    made: float = 0.0
    owner: str = ""
