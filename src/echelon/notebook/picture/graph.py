"""A pipeline as a graph: all that a drawing of it needs, and small enough for the record of a run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from echelon.values import frozen

if TYPE_CHECKING:  # who lists pipelines reads no notebook
    from echelon.notebook.analysis.pipeline import Pipeline, Step


@frozen
class Node:
    """A step: what comes before it, and which variables it gets from whom."""

    name: str
    after: tuple[str, ...] = ()
    gets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    size: str = ""  # in words, where it is more than one process

    @property
    def sources(self) -> list[str]:
        """The steps that a line comes from."""
        return list(dict.fromkeys([*self.after, *self.gets]))


Graph = Sequence[Node]


def graph_of(pipeline: Pipeline) -> tuple[Node, ...]:
    """Its steps, in an order in which they can run."""
    return tuple(
        Node(name=step.name, after=step.after, gets=_gets(step), size=_size(step)) for step in pipeline.steps
    )


def levels_of(graph: Graph) -> dict[str, int]:
    """How many steps come before each, one after the other."""
    found: dict[str, int] = {}
    for node in graph:
        found[node.name] = max((found[name] + 1 for name in node.sources if name in found), default=0)
    return found


def _gets(step: Step) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, source in step.flow.inputs.items():
        found.setdefault(source, []).append(name)
    return {source: tuple(sorted(names)) for source, names in found.items()}


def _size(step: Step) -> str:
    size = step.size
    parts = []
    if size.workers > 1 or size.coordinated:
        parts.append(f"{size.workers} workers, {size.framework}")
    if size.parameter_servers:
        parts.append(f"{size.parameter_servers} parameter servers")
    if size.gpus:
        parts.append(f"{size.gpus} GPU{'s' * (size.gpus > 1)}")
    return ", ".join(parts)
