"""Where steps and lines are: no line crosses a box, and nothing stands on something else."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from echelon.notebook.picture.drawing import Mark, as_svg
from echelon.notebook.picture.graph import Node
from echelon.notebook.picture.layout import lay_out

DIAMOND = (
    Node(name="load"),
    Node(name="left", after=("load",), gets={"load": ("x",)}),
    Node(name="right", after=("load",)),
    Node(name="join", after=("left", "right"), gets={"load": ("x",)}),  # over a column
)
WIDE = (
    Node(name="root"),
    *(Node(name=f"s{number}", after=("root",)) for number in range(400)),
    Node(name="end", after=tuple(f"s{number}" for number in range(400)), gets={"root": ("y",)}),
)


@pytest.mark.parametrize("graph", [(Node(name="alone"),), DIAMOND, WIDE, ()])
def test_every_place_is_taken_once_and_all_are_inside(graph: tuple[Node, ...]) -> None:
    layout = lay_out(graph)
    places = [*layout.steps.values(), *(place for line in layout.lines.values() for place in line)]
    assert len(set(places)) == len(places)
    assert all(0 <= column < layout.columns and 0 <= row < layout.rows for column, row in places)
    for node in graph:
        for source in node.sources:
            between = layout.steps[node.name][0] - layout.steps[source][0] - 1
            assert len(layout.lines[source, node.name]) == between
    ET.fromstring(as_svg(graph))


def test_lines_that_need_not_cross_do_not() -> None:
    graph = (
        Node(name="a"),
        Node(name="b"),
        Node(name="of-b", after=("b",)),
        Node(name="of-a", after=("a",)),
    )
    steps = lay_out(graph).steps
    assert (steps["a"][1] < steps["b"][1]) == (steps["of-a"][1] < steps["of-b"][1])


def test_marks_are_words_signs_and_links_and_all_is_escaped() -> None:
    nasty = '"><script>alert(1)</script>'
    marks = {
        "load": Mark(state="not-reached", sign="○"),
        nasty: Mark(state="running", sign="▶", run=f"run/{nasty}"),
    }
    drawn = ET.fromstring(as_svg((Node(name="load"), Node(name=nasty, after=("load",))), marks))
    assert not drawn.findall(".//{*}script")
    texts = [each.text for each in drawn.findall(".//{*}text")]
    assert {"○ not reached", "▶ running"} <= set(texts)
    [link] = drawn.findall(".//{*}a")
    assert link.attrib["href"].startswith("#/run/run%2F%22%3E%3Cscript")
