"""The steps of a notebook as an executor's work, without an executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.notebook.books import write_book

from echelon.model.program import Step
from echelon.notebook.analysis.pipeline import read_pipeline
from echelon.notebook.execution import steps
from echelon.notebook.execution.steps import NotebookSteps
from echelon.notebook.kept.folder import PipelineFolder, PipelineOptions, PipelineRecord, StepRecord


def test_the_report_is_made_ready_for_while_the_last_steps_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = tmp_path / "book.ipynb"
    write_book(book, [("step:a", "x = 1"), ("step:b prev:a", "x"), ("step:c prev:a", "x")])
    folder = PipelineFolder(tmp_path)
    record = PipelineRecord(
        name="book-1", notebook=str(book), created=0.0, steps={name: StepRecord() for name in "abc"}
    )
    loads: list[str] = []
    monkeypatch.setattr(steps, "load_beside", lambda: loads.append("nbconvert"))
    work = NotebookSteps(read_pipeline(book, None), folder, record, cast("Any", None), PipelineOptions())
    for name in "ab":
        work.changed(Step(name=name, state="running"))
        work.changed(Step(name=name, state="succeeded"))
    assert loads == []
    work.changed(Step(name="c", state="starting"))
    work.changed(Step(name="c", state="running"))
    assert loads == ["nbconvert"]
