"""A pipeline as a picture: its graph, where steps and lines are, and the drawing, as text, Mermaid and SVG.
Pure.

The graph is all that a drawing needs, and small enough for the record of a run. A step is as far to the right
as steps come before it. A line over several columns has a place of its own in each of them, so that it
crosses no box; within a column, everything is near what it is joined with."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import quote

from echelon.model.program import Step
from echelon.values import frozen

if TYPE_CHECKING:  # who lists pipelines reads no notebook
    from echelon.notebook.analysis.pipeline import Pipeline
    from echelon.notebook.analysis.pipeline import Step as AnalysedStep

_SWEEPS = 4
Spot = tuple[str, str, int]  # a step ("", NAME, column), or a line on its way (FROM, TO, column)
# Names that mean something to Mermaid; in capitals they do not, and no step has capitals.
_MERMAIDS = (
    "call",
    "class",
    "click",
    "default",
    "direction",
    "end",
    "flowchart",
    "graph",
    "href",
    "style",
    "subgraph",
)
_NARROWEST, _HIGH, _GAP_X, _GAP_Y = 150, 48, 90, 26  # of a box in the SVG, and between boxes
_SLIM = 70  # the same from top to bottom, where there is less room: a panel's
_GAP_DOWN = 34  # between boxes from top to bottom
_LONGEST = 40  # characters of a name
_LETTER, _SMALL = 8, 6  # pixels
_EDGE = 8  # around a picture from top to bottom
_SIGNS = {
    "succeeded": "✓",
    "cached": "✓",
    "kept": "✓",
    "failed": "✗",
    "lost": "✗",
    "damaged": "✗",
    "timed-out": "✗",
    "stopped": "■",
    "stopping": "■",
    "running": "▶",
    "starting": "↑",
    "restarting": "↻",
    "not-reached": "○",
}  # fmt: skip - as words.js has them, too
_WAITS = "…"


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


def _gets(step: AnalysedStep) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, source in step.flow.inputs.items():
        found.setdefault(source, []).append(name)
    return {source: tuple(sorted(names)) for source, names in found.items()}


def _size(step: AnalysedStep) -> str:
    size = step.size
    parts = []
    if size.workers > 1 or size.coordinated:
        parts.append(f"{size.workers} workers, {size.framework}")
    if size.parameter_servers:
        parts.append(f"{size.parameter_servers} parameter servers")
    if step.gpus:
        parts.append(f"{step.gpus} GPU{'s' * (step.gpus > 1)}")
    return ", ".join(parts)


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


@frozen
class Mark:
    """The text of a step in its box: how it stands, and the run that its box leads to."""

    state: str
    sign: str
    run: str | None = None


def as_text(graph: Graph) -> list[str]:
    """One line for each step, in an order in which they can run: what comes before it, and what it gets."""
    levels = levels_of(graph)
    rows = []
    for node in graph:
        mark = f"{'  ' * levels[node.name]}{'└ ' if node.after else ''}{node.name}"
        gets = [f"{', '.join(names)} from {source}" for source, names in node.gets.items()]
        rows.append((mark, " and ".join(node.after), "; ".join(gets), node.size))
    widths = [max(len(row[column]) for row in [("step", "after", "gets", ""), *rows]) for column in range(3)]
    heads = ("step", "after", "gets", "")
    return [
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]).rstrip()
        for row in [heads, *rows]
    ]


def as_mermaid(graph: Graph) -> str:
    """A flowchart, which many viewers of Markdown draw."""
    lines = ["flowchart LR"]
    lines += [
        f'    {_id(node.name)}["{node.name}{f"<br/>{node.size}" if node.size else ""}"]' for node in graph
    ]
    for node in graph:
        for source in node.sources:
            label = f"|{', '.join(node.gets[source])}|" if source in node.gets else ""
            lines.append(f"    {_id(source)} -->{label} {_id(node.name)}")
    return "\n".join(lines) + "\n"


def _id(step: str) -> str:
    return step.upper() if step in _MERMAIDS else step


def as_svg(graph: Graph, marks: Mapping[str, Mark] | None = None, *, downwards: bool = False) -> str:
    """A picture: steps from left to right, or from top to bottom, and the variables beside the lines. With
    `marks` it is for the dashboard: each box has its step's state, leads to its run, and takes its colours
    from the page.
    """
    layout = lay_out(graph)
    wide = max([_NARROWEST, *(_LETTER * len(_short(node.name)) + 30 for node in graph)])
    if downwards:
        needed = [(_LETTER * len(_short(node.name)), _SMALL * len(_short(node.size))) for node in graph]
        wide = max([_SLIM, *(max(each) + 16 for each in needed)])

    def corner(place: tuple[float, float]) -> tuple[int, int]:
        along, across = place
        if downwards:
            return _EDGE + round(across * (wide + _GAP_Y)), _EDGE + round(along * (_HIGH + _GAP_DOWN))
        return 20 + round(along * (wide + _GAP_X)), 20 + round(across * (_HIGH + _GAP_Y))

    right, bottom = corner((max(1, layout.columns) - 1, max(1.0, layout.rows) - 1))
    ways = {
        (source, node.name): [
            corner(each)
            for each in (layout.steps[source], *layout.lines[source, node.name], layout.steps[node.name])
        ]
        for node in graph
        for source in node.sources
        if source in layout.steps
    }
    width, height = right + wide + 20, bottom + _HIGH + 20
    if downwards:  # names stand right of the lines, and perhaps of all boxes
        names = {node.name: node.gets for node in graph}
        ends = [
            _beside(places, wide, downwards=True)[0] + _SMALL * len(_label(names[to].get(source, ())))
            for (source, to), places in ways.items()
        ]
        width, height = max([right + wide, *ends]) + _EDGE, bottom + _HIGH + _EDGE
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="13">'
        ),
        (
            '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0L8 4L0 8z" fill="#888"/></marker></defs>'
        ),
    ]
    for node in graph:
        for source in node.sources:
            if (source, node.name) in ways:
                label = _label(node.gets.get(source, ()))
                parts += _line(ways[source, node.name], wide, label, downwards=downwards)
    for node in graph:
        mark = None if marks is None else marks.get(node.name)
        parts += _box(node, corner(layout.steps[node.name]), wide, mark)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(node: Node, place: tuple[int, int], wide: int, mark: Mark | None) -> Iterator[str]:
    (left, top), middle = place, place[0] + wide // 2
    name, below = html.escape(_short(node.name)), html.escape(_short(node.size))
    if mark is None:
        yield (
            f'<g class="step" data-step="{html.escape(node.name)}">'
            f'<rect x="{left}" y="{top}" width="{wide}" height="{_HIGH}" rx="6" fill="#fff" stroke="#446"/>'
            f'<text x="{middle}" y="{top + (20 if below else 29)}" text-anchor="middle">{name}</text>'
        )
        if below:
            yield (
                f'<text x="{middle}" y="{top + 38}" text-anchor="middle" font-size="11" fill="#666">'
                f"{below}</text>"
            )
        yield "</g>"
        return
    told = html.escape(f"{mark.sign} {mark.state.replace('-', ' ')}")
    drawn = (
        f"<title>{html.escape(node.name)}{f' ({below})' if below else ''}</title>"
        f'<rect class="step {html.escape(mark.state)}" x="{left}" y="{top}" width="{wide}" height="{_HIGH}" '
        f'rx="6"/><text x="{middle}" y="{top + 20}" text-anchor="middle">{name}</text>'
        f'<text class="state {html.escape(mark.state)}" x="{middle}" y="{top + 38}" text-anchor="middle" '
        f'font-size="12">{told}</text>'
    )
    link = "" if mark.run is None else html.escape(f"#/run/{quote(mark.run, safe='')}")
    yield f'<a href="{link}">{drawn}</a>' if link else f"<g>{drawn}</g>"


def _line(places: Sequence[tuple[int, int]], wide: int, label: str, *, downwards: bool) -> Iterator[str]:
    """From the end of the first box to the beginning of the last, straight past what is between them."""

    at = _leave(places[0], wide, downwards=downwards)
    path = f"M{at[0]} {at[1]}"
    for number, place in enumerate(places[1:], 1):
        to = _enter(place, wide, downwards=downwards)
        if downwards:
            turn = (at[1] + to[1]) // 2
            path += f"C{at[0]} {turn} {to[0]} {turn} {to[0]} {to[1]}"
        else:
            turn = (at[0] + to[0]) // 2
            path += f"C{turn} {at[1]} {turn} {to[1]} {to[0]} {to[1]}"
        if number < len(places) - 1:
            at = _leave(place, wide, downwards=downwards)
            path += f"L{at[0]} {at[1]}"
    yield f'<path d="{path}" fill="none" stroke="#888" marker-end="url(#end)"/>'
    if label:
        x, y = _beside(places, wide, downwards=downwards)
        anchor = "start" if downwards else "middle"
        yield (
            f'<text class="flow" x="{x}" y="{y}" text-anchor="{anchor}" font-size="11" fill="#555">'
            f"{html.escape(label)}</text>"
        )


def _enter(place: tuple[int, int], wide: int, *, downwards: bool) -> tuple[int, int]:
    return (place[0] + wide // 2, place[1]) if downwards else (place[0], place[1] + _HIGH // 2)


def _leave(place: tuple[int, int], wide: int, *, downwards: bool) -> tuple[int, int]:
    x, y = _enter(place, wide, downwards=downwards)
    return (x, y + _HIGH) if downwards else (x + wide, y)


def _beside(places: Sequence[tuple[int, int]], wide: int, *, downwards: bool) -> tuple[int, int]:
    """Where the names stand that go along a line: after the box that it begins at."""
    first, second = _leave(places[0], wide, downwards=downwards), _enter(places[1], wide, downwards=downwards)
    x, y = (first[0] + second[0]) // 2, (first[1] + second[1]) // 2
    return (x + 6, y + 4) if downwards else (x, y - 5)


def _label(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= 24 else f"{text[:23]}…"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def drawing_of(steps: Sequence[Step], runs: Mapping[str, str]) -> str:
    """Steps as SVG, with the state of each. `runs` are the names, by step, of the runs that boxes lead to."""
    graph = [Node(name=step.name, after=step.after, gets=step.gets, size=step.size) for step in steps]
    marks = {
        step.name: Mark(state=step.state, sign=_SIGNS.get(step.state, _WAITS), run=runs.get(step.name))
        for step in steps
    }
    return as_svg(graph, marks)
