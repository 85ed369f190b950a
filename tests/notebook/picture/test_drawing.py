"""What is drawn from top to bottom, for a panel, is no wider than it has to be, and nothing is cut."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from echelon.notebook.picture.drawing import as_svg
from echelon.notebook.picture.graph import Node

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
