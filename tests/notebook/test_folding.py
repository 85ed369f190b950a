"""The steps of a notebook are one row of `ps`."""

from __future__ import annotations

from echelon.model.status import RunSummary, State
from echelon.notebook.folding import fold_pipelines


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
    folded = fold_pipelines(rows)
    assert [each.name for each in folded] == ["b-2", "nb-1", "alone"]
    assert (folded[1].state, folded[1].created, folded[1].ended) == ("running", 2.0, None)
    assert folded[1].command == "notebook, 2 steps"


def test_a_failed_step_is_the_state_of_the_pipeline() -> None:
    (one,) = fold_pipelines([row("p-b", "failed", "p", 3.0), row("p-a", "succeeded", "p", 1.0)])
    assert (one.state, one.ended) == ("failed", 4.0)
