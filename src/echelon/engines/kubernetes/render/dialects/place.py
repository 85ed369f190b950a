"""A place on a node that an object keeps for one of its pods: one value for all dialects."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.engines.kubernetes.shapes import PodSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A worker whose pod exists or will exist; `node` is empty where the scheduler alone chooses it."""

    namespace: str
    run: str
    pod: tuple[str, ...]  # identifies the pod within its namespace: the dialect's `pod_of`
    node: str
    spec: PodSpec
