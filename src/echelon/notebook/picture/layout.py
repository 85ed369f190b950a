"""Where the steps of a graph stand in a picture, and where the lines between them run. Pure.

A step is as far to the right as steps come before it. A line over several columns has a place of its own in
each of them, so that it crosses no box; within a column, everything is near what it is joined with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from echelon.notebook.picture.graph import Graph, levels_of
from echelon.values import frozen

_SWEEPS = 4
Spot = tuple[str, str, int]  # a step ("", NAME, column), or a line on its way (FROM, TO, column)


@frozen
class Layout:
    """Columns and rows, both from 0; a row may be between two others."""

    steps: Mapping[str, tuple[int, float]]
    lines: Mapping[tuple[str, str], Sequence[tuple[int, float]]]  # the places between the two ends
    columns: int
    rows: float


def lay_out(graph: Graph) -> Layout:
    """The places of steps and lines."""
    levels = levels_of(graph)
    columns: list[list[Spot]] = [[] for _ in range(max(levels.values(), default=-1) + 1)]
    beside: dict[Spot, list[Spot]] = {}
    ways: dict[tuple[str, str], list[Spot]] = {}
    for node in graph:
        columns[levels[node.name]].append(("", node.name, levels[node.name]))
    for node in graph:
        for source in node.sources:
            if source not in levels:
                continue
            between = range(levels[source] + 1, levels[node.name])
            way: list[Spot] = [(source, node.name, level) for level in between]
            for spot in way:
                columns[spot[2]].append(spot)
            ends: list[Spot] = [("", source, levels[source]), *way, ("", node.name, levels[node.name])]
            for one, other in pairwise(ends):
                beside.setdefault(one, []).append(other)
                beside.setdefault(other, []).append(one)
            ways[source, node.name] = way
    _order(columns, beside)
    tallest = max(map(len, columns), default=0)
    rows = {
        spot: at + (tallest - len(column)) / 2  # a short column stands in the middle
        for column in columns
        for at, spot in enumerate(column)
    }
    return Layout(
        steps={node.name: (levels[node.name], rows["", node.name, levels[node.name]]) for node in graph},
        lines={ends: [(spot[2], rows[spot]) for spot in way] for ends, way in ways.items()},
        columns=len(columns),
        rows=float(tallest),
    )


def _order(columns: list[list[Spot]], beside: Mapping[Spot, Sequence[Spot]]) -> None:
    """Put each spot near the middle of those that it is joined with, from left to right and back."""
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for at in range(len(columns)) if forward else reversed(range(len(columns))):
            other = at - 1 if forward else at + 1
            if not 0 <= other < len(columns):
                continue
            places = {spot: place for place, spot in enumerate(columns[other])}
            own = {spot: float(place) for place, spot in enumerate(columns[at])}
            for spot in columns[at]:
                near = [places[each] for each in beside.get(spot, ()) if each in places]
                if near:
                    own[spot] = sum(near) / len(near)
            columns[at].sort(key=own.__getitem__)
