"""Steps drawn as they stand."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import get_args

from echelon.model.program import Step
from echelon.model.state import StepState
from echelon.notebook.picture.stepped import drawing_of


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
