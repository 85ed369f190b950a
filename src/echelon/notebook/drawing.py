"""A pipeline drawn: as text for a terminal, as Mermaid, as SVG. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterator

from echelon.notebook.pipeline import Pipeline, Step

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
_WIDE, _HIGH, _GAP_X, _GAP_Y, _GAP_DOWN = 150, 44, 90, 26, 34  # of a box in the SVG, and between boxes


def as_text(pipeline: Pipeline) -> list[str]:
    """One line for each step, in an order in which they can run: what comes before it, and what it gets."""
    levels = _levels(pipeline)
    rows = []
    for step in pipeline.steps:
        mark = f"{'  ' * levels[step.name]}{'└ ' if step.after else ''}{step.name}"
        gets = [f"{names} from {source}" for source, names in _edges(step)]
        rows.append((mark, " and ".join(step.after), "; ".join(gets), _size(step)))
    widths = [max(len(row[column]) for row in [("step", "after", "gets", ""), *rows]) for column in range(3)]
    heads = ("step", "after", "gets", "")
    return [
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]).rstrip()
        for row in [heads, *rows]
    ]


def as_mermaid(pipeline: Pipeline) -> str:
    """A flowchart, which many viewers of Markdown draw."""
    lines = ["flowchart LR"]
    for step in pipeline.steps:
        size = _size(step)
        lines.append(f'    {_id(step.name)}["{step.name}{f"<br/>{size}" if size else ""}"]')
    for step in pipeline.steps:
        labels = dict(_edges(step))
        for source in dict.fromkeys([*step.after, *labels]):
            label = f"|{labels[source]}|" if source in labels else ""
            lines.append(f"    {_id(source)} -->{label} {_id(step.name)}")
    return "\n".join(lines) + "\n"


def _id(step: str) -> str:
    return step.upper() if step in _MERMAIDS else step


def as_svg(pipeline: Pipeline, *, downwards: bool = False) -> str:
    """A picture: steps from left to right, or from top to bottom, and the variables beside the lines."""
    levels = _levels(pipeline)
    places: dict[str, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for step in pipeline.steps:
        level = levels[step.name]
        row = filled.get(level, 0)
        filled[level] = row + 1
        places[step.name] = (
            (20 + row * (_WIDE + _GAP_Y), 20 + level * (_HIGH + _GAP_DOWN))
            if downwards
            else (20 + level * (_WIDE + _GAP_X), 20 + row * (_HIGH + _GAP_Y))
        )
    lines: list[str] = []
    far = False
    for step in pipeline.steps:
        labels = dict(_edges(step))
        for source in dict.fromkeys([*step.after, *labels]):
            ends, label = (places[source], places[step.name]), labels.get(source, "")
            if downwards and levels[step.name] - levels[source] > 1:
                far = True
                between = range(levels[source], levels[step.name] + 1)
                right = max(places[each][0] for each, level in levels.items() if level in between) + _WIDE
                lines += _bow(*ends, label, right)
            else:
                lines += _line(*ends, label, downwards=downwards)
    room = (170 if far else 80) if downwards else 20  # for what stands beside the lines
    width = room + max(left for left, _top in places.values()) + _WIDE
    height = 20 + max(top for _left, top in places.values()) + _HIGH
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="13">'
        ),
        (
            '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0L8 4L0 8z" fill="#888"/></marker></defs>'
        ),
        *lines,
        *(part for step in pipeline.steps for part in _box(step, *places[step.name])),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(step: Step, left: int, top: int) -> Iterator[str]:
    yield (
        f'<g class="step" data-step="{html.escape(step.name)}">'
        f'<rect x="{left}" y="{top}" width="{_WIDE}" height="{_HIGH}" rx="6" fill="#fff" stroke="#446"/>'
        f'<text x="{left + _WIDE // 2}" y="{top + (18 if _size(step) else 27)}" text-anchor="middle">'
        f"{html.escape(step.name)}</text>"
    )
    if _size(step):
        yield (
            f'<text x="{left + _WIDE // 2}" y="{top + 36}" text-anchor="middle" font-size="11" '
            f'fill="#666">{html.escape(_size(step))}</text>'
        )
    yield "</g>"


def _line(source: tuple[int, int], target: tuple[int, int], label: str, *, downwards: bool) -> Iterator[str]:
    if downwards:
        begin, end = (source[0] + _WIDE // 2, source[1] + _HIGH), (target[0] + _WIDE // 2, target[1])
    else:
        begin, end = (source[0] + _WIDE, source[1] + _HIGH // 2), (target[0], target[1] + _HIGH // 2)
    yield (
        f'<line x1="{begin[0]}" y1="{begin[1]}" x2="{end[0]}" y2="{end[1]}" stroke="#888" '
        'marker-end="url(#end)"/>'
    )
    at = ((begin[0] + end[0]) // 2, (begin[1] + end[1]) // 2)
    yield from _label((at[0] + 6, at[1] + 4) if downwards else (at[0], at[1] - 5), label, downwards=downwards)


def _bow(source: tuple[int, int], target: tuple[int, int], label: str, right: int) -> Iterator[str]:
    """A line downwards around the steps that stand between; `right` is where they end."""
    begin, end = (source[0] + _WIDE, source[1] + _HIGH // 2), (target[0] + _WIDE, target[1] + _HIGH // 2)
    outer = (right + 14) * 4 // 3 - (
        begin[0] + end[0]
    ) // 6  # so that the middle of the curve is at right + 14
    yield (
        f'<path d="M{begin[0]} {begin[1]}C{outer} {begin[1]} {outer} {end[1]} {end[0]} {end[1]}" fill="none" '
        'stroke="#888" marker-end="url(#end)"/>'
    )
    yield from _label((right + 18, (begin[1] + end[1]) // 2 + 4), label, downwards=True)


def _label(at: tuple[int, int], label: str, *, downwards: bool) -> Iterator[str]:
    if label:
        short = label if len(label) <= 24 else f"{label[:23]}…"
        yield (
            f'<text x="{at[0]}" y="{at[1]}" text-anchor="{"start" if downwards else "middle"}" '
            f'font-size="11" fill="#555">{html.escape(short)}</text>'
        )


def _levels(pipeline: Pipeline) -> dict[str, int]:
    found: dict[str, int] = {}
    for step in pipeline.steps:
        found[step.name] = max((found[name] + 1 for name in step.after), default=0)
    return found


def _edges(step: Step) -> list[tuple[str, str]]:
    """The steps that a step gets variables from, and which."""
    found: dict[str, list[str]] = {}
    for name, source in step.flow.inputs.items():
        found.setdefault(source, []).append(name)
    return [(source, ", ".join(sorted(names))) for source, names in found.items()]


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
