"""Curves as one picture, an SVG that stands alone: a small chart for each metric. Pure.

It has a ground of its own, so that it can be read wherever it is shown, and is dark where the system is. Its
size is bounded, however many values there are."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from echelon.metrics.series import bounded, number, value_range
from echelon.model.display import one_line

MOST = 12  # charts of one picture
_ACROSS = 3
_WIDE, _HIGH, _GAP = 250, 150, 10  # of a chart, in pixels, and between charts
_LEFT, _TOP, _RIGHT, _BOTTOM = 52, 28, 10, 24  # from the chart's edge to its field
_LONGEST = 26  # characters of a name
_LEGEND = 4  # curves of a chart that are named
_DASHES = ("", "6 3", "2 3", "8 3 2 3")  # curves differ without colour, too
_STYLE = (
    ".g{fill:#fff}.c{fill:none;stroke:#d0d7de}.t{fill:#1b1f24}.s{fill:#57606a}"
    ".p{fill:none;stroke-width:1.8;stroke-linejoin:round}"
    ".p0{stroke:#0b57d0}.p1{stroke:#b3261e}.p2{stroke:#116329}.p3{stroke:#7b1fa2}"
    "@media (prefers-color-scheme:dark){.g{fill:#12161b}.c{stroke:#39424d}.t{fill:#e6e9ed}.s{fill:#9aa4af}"
    ".p0{stroke:#8ab4f8}.p1{stroke:#ff9b94}.p2{stroke:#6fdd8b}.p3{stroke:#d7aefb}}"
)
Chart = Mapping[str, Any]


def as_image(charts: Sequence[Chart]) -> str:
    """Charts (`Curves.charts`) as an HTML image that holds its own data: a notebook that is not trusted loses
    every other form of SVG. "" where nothing was measured."""
    if not charts:
        return ""
    told = ", ".join(f"{_name(chart)} {number(chart['last'])}" for chart in charts[:MOST])
    source = quote(as_svg(charts), safe=" /:;,.=()")
    more = len(charts) - MOST
    left_out = f"<br>and {more} more: run.metrics() has them" if more > 0 else ""
    return f'<img alt="curves: {html.escape(told)}" src="data:image/svg+xml,{source}">{left_out}'


def as_svg(charts: Sequence[Chart]) -> str:
    """The picture."""
    shown = charts[:MOST]
    across = max(1, min(_ACROSS, len(shown)))
    width = across * (_WIDE + _GAP) + _GAP
    height = -(-len(shown) // across) * (_HIGH + _GAP) + _GAP
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="11"><style>{_STYLE}</style>'
            f'<rect class="g" width="{width}" height="{height}" rx="8"/>'
        )
    ]
    for at, chart in enumerate(shown):
        row, column = divmod(at, across)
        left, top = _GAP + column * (_WIDE + _GAP), _GAP + row * (_HIGH + _GAP)
        parts += [f'<g transform="translate({left} {top})">', *_chart(chart), "</g>"]
    return "".join([*parts, "</svg>"])


def _chart(chart: Chart) -> list[str]:
    parts = [
        f'<rect class="c" width="{_WIDE}" height="{_HIGH}" rx="5"/>',
        f'<text class="t" x="8" y="17" font-size="12" font-weight="bold">{html.escape(_name(chart))}</text>',
        f'<text class="t" x="{_WIDE - 8}" y="17" text-anchor="end">{number(chart["last"])}</text>',
    ]
    labelled = [each for each in chart["curves"] if each["x"]]
    drawn = [(bounded(each["x"]), bounded(each["y"])) for each in labelled]
    if not drawn:
        return [*parts, '<text class="s" x="8" y="60">no value is a finite number</text>']
    low, high = value_range([y for _, ys in drawn for y in ys])
    first, last = min(xs[0] for xs, _ in drawn), max(xs[-1] for xs, _ in drawn)
    bottom, right = _HIGH - _BOTTOM, _WIDE - _RIGHT
    parts += [
        f'<path class="c" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>',
        _label(_LEFT - 4, _TOP + 8, "end", number(high)),
        _label(_LEFT - 4, bottom, "end", number(low)),
        _label(_LEFT, _HIGH - 8, "start", number(first)),
        _label(_WIDE // 2 + _LEFT // 2, _HIGH - 8, "middle", str(chart["axis"])),
        _label(right, _HIGH - 8, "end", number(last)),
    ]
    for at, (xs, ys) in enumerate(drawn):
        places = _places(xs, ys, (first, last), (low, high))
        dash = f' stroke-dasharray="{_DASHES[at % 4]}"' if at % 4 else ""
        if len(places) == 1:
            x, y = places[0]
            places = [(x - 2, y), (x + 2, y)]  # one value is a short line, which can be seen
        points = " ".join(f"{x:.0f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline class="p p{at % 4}"{dash} points="{points}"/>')
        if len(drawn) > 1 and at < _LEGEND:
            y = _TOP + 6 + 12 * at
            parts.append(f'<path class="p p{at % 4}"{dash} d="M{right - 24} {y}H{right}"/>')
            parts.append(_label(right - 28, y + 3, "end", _short(labelled[at]["label"], 16)))
    return parts


def _places(
    xs: Sequence[float], ys: Sequence[float], along: tuple[float, float], up: tuple[float, float]
) -> list[tuple[float, float]]:
    """Points in pixels; of those in one column, the least and the greatest: no peak is lost."""
    wide, high = _WIDE - _LEFT - _RIGHT, _HIGH - _TOP - _BOTTOM
    columns: dict[int, list[tuple[int, float]]] = {}
    for at, (x, y) in enumerate(zip(xs, ys, strict=True)):
        column = round((x - along[0]) / (along[1] - along[0]) * wide) if along[1] > along[0] else wide // 2
        columns.setdefault(column, []).append((at, y))
    found: list[tuple[float, float]] = []
    for column, values in columns.items():
        ends = {min(values, key=lambda each: each[1]), max(values, key=lambda each: each[1])}
        for _, y in sorted(ends):
            found.append((_LEFT + column, _TOP + (up[1] - y) / (up[1] - up[0]) * high))
    return found


def _label(x: int, y: int, anchor: str, text: str) -> str:
    return f'<text class="s" x="{x}" y="{y}" text-anchor="{anchor}" font-size="10">{html.escape(text)}</text>'


def _name(chart: Chart) -> str:
    return _short(str(chart["name"]), _LONGEST)


def _short(text: str, most: int) -> str:
    text = one_line(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
