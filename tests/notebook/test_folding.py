"""The steps of a notebook are one row of `ps`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from echelon.model.status import RunSummary, State
from echelon.notebook.folding import fold_pipelines, row_of
from echelon.notebook.kept.folder import PipelineFolder, PipelineRecord, StepRecord
from echelon.notebook.kept.noted import Noted


def row(name: str, state: State = "succeeded", pipeline: str | None = None, at: float = 0.0) -> RunSummary:
    ended = None if state == "running" else at + 1
    return RunSummary(
        name=name, uri=f"local://{name}", state=state, created=at, ended=ended, pipeline=pipeline
    )


def test_steps_are_one_row_at_the_place_of_the_first() -> None:
    rows = [
        row("b-2", at=9.0),
        row("nb-1-train", "running", "nb-1", at=5.0),
        row("alone", at=4.0),
        row("nb-1-load", "succeeded", "nb-1", at=2.0),
    ]
    folded = fold_pipelines(rows, {})
    assert [each.name for each in folded] == ["b-2", "nb-1", "alone"]
    assert (folded[1].state, folded[1].created, folded[1].ended) == ("running", 2.0, None)
    assert folded[1].command == "notebook, 2 steps"


def test_a_failed_step_is_the_state_of_the_pipeline() -> None:
    (one,) = fold_pipelines([row("p-b", "failed", "p", 3.0), row("p-a", "succeeded", "p", 1.0)], {})
    assert (one.state, one.ended) == ("failed", 4.0)


def known(*, held: bool = False, over: bool = True, **steps: StepRecord) -> dict[str, Noted]:
    record = PipelineRecord(name="p-1", notebook="", created=0.0, steps=steps, over=over)
    return {"p-1": Noted(folder=PipelineFolder(Path("p-1")), record=record, held=held)}


DONE = StepRecord(state="succeeded", run="p-1-a", started=1.0, ended=2.0)


def test_the_record_tells_of_steps_that_have_no_run() -> None:
    """A step that was refused at submission, and one of a command that was killed before it."""
    rows = [row("p-1-a", "succeeded", "p-1", 1.0)]
    refused = StepRecord(state="failed", run="p-1-b", reason="no node has 8 GPUs", ended=3.0)
    (one,) = fold_pipelines(rows, known(a=DONE, b=refused))
    assert (one.state, one.reason, one.ended) == ("failed", "step b: no node has 8 GPUs", 3.0)
    assert one.command == "notebook, 1 of 2 steps"
    (one,) = fold_pipelines(rows, known(a=DONE, b=StepRecord(), over=False))
    assert one.state == "lost"
    (one,) = fold_pipelines(rows, known(a=DONE, b=StepRecord(), over=False, held=True))
    assert (one.state, one.ended) == ("running", None)


def test_pipelines_of_two_users_that_have_one_name_are_two_rows() -> None:
    mine, hers = row("p-1-a", "succeeded", "p-1", 1.0), row("p-1-b", "failed", "p-1", 2.0)
    rows = [replace(hers, owner="ann", own=False), mine]
    assert [each.state for each in fold_pipelines(rows, known(a=DONE))] == ["failed", "succeeded"]


def test_one_that_no_step_has_a_run_of_has_a_row() -> None:
    cached = StepRecord(state="cached", ended=5.0)
    own = row_of(known(a=cached, b=cached)["p-1"])
    assert (own.name, own.state, own.ended, own.pipeline) == ("p-1", "succeeded", 5.0, None)
    assert own.command == "notebook, 2 steps from the cache"
    refused = StepRecord(state="failed", reason="refused", ended=3.0)
    own = row_of(known(a=refused, b=StepRecord(state="not-reached"))["p-1"])
    assert (own.state, own.command) == ("failed", "notebook, 0 of 2 steps")
