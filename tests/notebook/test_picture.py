from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import get_args

import pytest

from echelon.model.program import Step
from echelon.model.state import StepState
from echelon.notebook.picture import Mark, Node, as_svg, drawing_of, lay_out

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


BRANCHES = (
    Node(name="load"),
    Node(name="left", after=("load",), gets={"load": ("x",)}),
    Node(name="right", after=("load",), gets={"load": ("a_long_name", "and_another_one")}, size="2 workers"),
)


@pytest.mark.parametrize("size", ["", "4 workers, tensorflow, 8 GPUs each"])
def test_all_that_is_drawn_is_inside(size: str) -> None:
    drawn = ET.fromstring(as_svg((*BRANCHES, Node(name="last", size=size)), downwards=True))
    width = float(drawn.attrib["width"])
    for box in drawn.findall(".//{*}rect"):
        left, wide = float(box.attrib["x"]), float(box.attrib["width"])
        assert left >= 0
        assert left + wide <= width
    for text in drawn.findall(".//{*}text"):
        assert text.text
        half = 0.5 if text.get("text-anchor") == "middle" else 1.0
        assert float(text.attrib["x"]) + half * 5.5 * len(text.text) <= width


def test_branches_with_short_names_stand_close() -> None:
    across = ET.fromstring(as_svg(BRANCHES[:2]))
    down = ET.fromstring(as_svg(BRANCHES[:2], downwards=True))
    assert float(down.attrib["width"]) < 0.3 * float(across.attrib["width"])


def test_each_step_has_its_state_and_leads_to_its_run() -> None:
    load = Step(name="load", state="succeeded")
    train = Step(name="train", state="not-reached", after=("load",), gets={"load": ("x",)}, size="2 workers")
    drawn = ET.fromstring(drawing_of([load, train], {"load": "p-1-load"}))
    assert [link.attrib["href"] for link in drawn.findall(".//{*}a")] == ["#/run/p-1-load"]
    said = [each.text for each in drawn.iter()]
    for text in ("✓ succeeded", "○ not reached", "x", "train (2 workers)"):
        assert text in said
    assert len(drawn.findall("{*}path")) == 1  # the line between them


def test_every_state_has_a_sign() -> None:
    for state in get_args(StepState):
        assert drawing_of([Step(name="a", state=state)], {}).count(f" {state.replace('-', ' ')}</text>") == 1


def test_steps_of_which_no_order_is_known_have_no_lines() -> None:
    drawn = drawing_of([Step(name="b"), Step(name="a")], {"a": "p-1-a", "b": "p-1-b"})
    assert (drawn.count("<a href="), drawn.count('stroke="#888" marker-end')) == (2, 0)
