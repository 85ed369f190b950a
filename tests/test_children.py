"""Lists of runs in which some are made of others."""

from __future__ import annotations

from typing import Any

from echelon.children import folded, gathered, nested
from echelon.model.status import RunSummary


def row(name: str, state: Any = "running", **more: Any) -> RunSummary:
    return RunSummary(name=name, uri=f"local://{name}", state=state, **{"created": 2.0, **more})


def step(name: str, state: Any = "running", **more: Any) -> RunSummary:
    return row(name, state, **{"parent": "p-1", **more})


def names(rows: Any) -> list[tuple[str, list[str]]]:
    return [(each.name, [step.name for step in below]) for each, below in nested(rows)]


def test_steps_are_below_their_parent() -> None:
    parent = row("p-1", steps=3, steps_done=1)
    rows = [step("p-1-b"), row("other"), step("p-1-a", "succeeded"), parent]
    assert names(rows) == [("other", []), ("p-1", ["p-1-b", "p-1-a"])]
    assert folded(rows) == [rows[1], parent]


def test_steps_whose_parent_is_elsewhere_are_one_row() -> None:
    rows = [
        step("p-1-b", gpus=2, workers=2),
        step("p-1-a", "succeeded", created=1.0, ended=3.0),
        row("other"),
    ]
    [(made, below), (other, _)] = nested(rows)
    assert (made.name, made.state, made.created, made.ended, made.gpus) == ("p-1", "running", 1.0, None, 2)
    assert (made.steps, made.steps_done, made.parent) == (2, 1, None)
    assert (list(below), other.name) == (rows[:2], "other")
    status = gathered(made, below)
    assert (status.name, status.state, status.uri) == ("p-1", "running", "")  # no verb takes it
    assert [(each.name, each.state, each.run, each.ended) for each in status.steps] == [
        ("a", "succeeded", "local://p-1-a", 3.0),
        ("b", "running", "local://p-1-b", None),
    ]


def test_the_worst_end_is_that_of_one_whose_parent_is_elsewhere() -> None:
    rows = [step("p-1-b", "failed", reason="no luck", ended=5.0), step("p-1-a", "succeeded", ended=3.0)]
    [(made, below)] = nested(rows)
    assert (made.state, made.reason, made.ended) == ("failed", "no luck", 5.0)
    assert gathered(made, below).reason == "no luck"


def test_those_of_others_are_not_below_ones_own_of_that_name() -> None:
    parent = row("p-1", steps=1)
    rows = [
        parent,
        step("p-1-a"),
        step("p-1-b", own=False, owner="ben"),
        step("p-1-c", own=False, owner="ann"),
    ]
    assert names(rows) == [("p-1", ["p-1-a"]), ("p-1", ["p-1-b"]), ("p-1", ["p-1-c"])]
    assert [each.owner for each in folded(rows)] == ["", "ben", "ann"]


def test_a_parent_that_cannot_be_read_keeps_its_steps() -> None:
    rows = [row("p-1", "damaged"), step("p-1-a")]
    assert names(rows) == [("p-1", ["p-1-a"])]
    assert [each.state for each in folded(rows)] == ["damaged"]
