"""The steps of a run drawn as they stand: the graph on the dashboard, whose boxes lead to runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.model.program import Step
from echelon.notebook.picture.drawing import Mark, as_svg
from echelon.notebook.picture.graph import Node

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


def drawing_of(steps: Sequence[Step], runs: Mapping[str, str]) -> str:
    """Steps as SVG, with the state of each. `runs` are the names, by step, of the runs that boxes lead to."""
    graph = [Node(name=step.name, after=step.after, gets=step.gets, size=step.size) for step in steps]
    marks = {
        step.name: Mark(state=step.state, sign=_SIGNS.get(step.state, _WAITS), run=runs.get(step.name))
        for step in steps
    }
    return as_svg(graph, marks)
