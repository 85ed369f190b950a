"""How a pipeline run stands, by its record and by the runs of its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from echelon.agent.gang.verdict import STOPPED_EXIT_CODE
from echelon.model.status import RunSummary
from echelon.notebook.kept.folder import PipelineRecord, StepRecord
from echelon.notebook.picture.graph import Node
from echelon.notebook.standing import drawing_of, exit_code_of, standing_of


def record(**states: Any) -> PipelineRecord:
    steps = {
        name: StepRecord(
            state=state, run=f"p-1-{name}", ended=None if state in ("waiting", "running") else 9.0
        )
        for name, state in states.items()
    }
    graph = tuple(Node(name=name) for name in states)
    return PipelineRecord(name="p-1", notebook="p.ipynb", created=1.0, steps=steps, graph=graph)


def row(step: str, state: Any, **more: Any) -> RunSummary:
    name = f"p-1-{step}"
    return RunSummary(name=name, uri=f"local:{name}", state=state, created=2.0, pipeline="p-1", **more)


def test_between_two_steps_it_goes_on() -> None:
    """All runs are over then: only the command that runs the steps tells."""
    found = standing_of("p-1", record(a="succeeded", b="waiting"), [row("a", "succeeded")], held=True)
    assert (found.state, found.done, found.ended) == ("running", 1, None)
    assert [(step.state, step.sign, step.run) for step in found.steps] == [
        ("succeeded", "✓", "p-1-a"),
        ("waiting", "…", None),
    ]


def test_a_step_that_runs_stands_as_its_run_does() -> None:
    queued = row("a", "queued", reason="no GPU is free")
    [step] = standing_of("p-1", record(a="running"), [queued], held=True).steps
    assert (step.state, step.reason) == ("queued", "no GPU is free")


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"a": "succeeded", "b": "cached", "c": "kept"}, "succeeded"),
        ({"a": "failed", "b": "not-reached"}, "failed"),
        ({"a": "succeeded", "b": "stopped", "c": "not-reached"}, "stopped"),
        ({"a": "succeeded", "b": "not-reached"}, "stopped"),  # it was stopped between two steps
        ({"a": "succeeded", "b": "waiting"}, "lost"),  # its command was killed
    ],
)
def test_one_that_no_command_runs(states: dict[str, str], expected: str) -> None:
    found = standing_of("p-1", record(**states), [])
    assert found.state == expected
    assert found.ended == 9.0
    for sign in ("<svg", *states):
        assert sign in drawing_of(found)


def test_a_step_may_outlive_the_command_that_ran_it() -> None:
    found = standing_of("p-1", record(a="running", b="waiting"), [row("a", "running")])
    assert found.state == "running"
    assert "gone" in found.reason


def test_a_step_that_had_succeeded_stays_so_when_the_command_is_killed() -> None:
    """The record knows only that it ran; its run knows its end. No results were written."""
    ran = record(a="running", b="waiting")
    found = standing_of("p-1", ran, [row("a", "succeeded", ended=4.0)])
    assert [(step.state, step.ended) for step in found.steps] == [("succeeded", 4.0), ("lost", None)]
    assert (found.state, exit_code_of(ran)) == ("lost", 117)
    last = replace(record(a="succeeded", b="running"), over=False)
    found = standing_of("p-1", last, [row("a", "succeeded"), row("b", "succeeded")])
    assert (found.state, found.done) == ("lost", 2)
    assert standing_of("p-1", replace(last, over=False), []).state == "lost"


def test_a_run_of_an_earlier_try_tells_nothing() -> None:
    again = replace(record(a="running"), steps={"a": StepRecord(state="running", run="p-1-a", started=3.0)})
    [step] = standing_of("p-1", again, [row("a", "failed")], held=True).steps
    assert step.state == "running"


def test_one_that_goes_on_tells_what_a_step_waits_for() -> None:
    found = standing_of("p-1", record(a="running"), [row("a", "queued", reason="no GPU is free")], held=True)
    assert (found.state, found.reason) == ("running", "step a: no GPU is free")


def test_exit_codes() -> None:
    assert exit_code_of(record(a="succeeded", b="kept")) == 0
    assert exit_code_of(replace(record(a="succeeded"), missing="its files stay on pvc:p-1")) == 123
    assert exit_code_of(record(a="succeeded", b="not-reached")) == STOPPED_EXIT_CODE
    refused = {"a": StepRecord(state="failed", exit_code=113), "b": StepRecord(state="not-reached")}
    assert exit_code_of(replace(record(), steps=refused)) == 113


def test_one_of_another_machine_has_steps_without_lines() -> None:
    found = standing_of("p-1", None, [row("b", "running", own=False, owner="ann"), row("a", "succeeded")])
    assert (found.state, found.owner) == ("running", "ann")
    assert {step.name for step in found.steps} == {"a", "b"}
    assert drawing_of(found).count("<a href=") == 2
