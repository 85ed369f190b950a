"""A pipeline run as the panel shows it, and the command that starts one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.notebook.books import write_book

from echelon.errors import UnknownRun
from echelon.lab.requests import Asked
from echelon.lab.starting import command_of
from echelon.lab.state import last_lines, newest_run, run_of, state_of
from echelon.notebook.folder import (
    PipelineFolder,
    PipelineRecord,
    StepRecord,
    held,
    make_folder,
    write_record,
)
from echelon.notebook.noted import note_pipeline, noted

FAILED = StepRecord(
    state="failed", cell=2, line=1, reason="ValueError", traceback="Traceback", run="book-1-b"
)


def made(notebook: Path, created: float, **steps: StepRecord) -> PipelineFolder:
    """A pipeline run that this machine remembers."""
    folder = make_folder(notebook.parent / "runs", notebook.stem, ())
    record = PipelineRecord(name=folder.name, notebook=str(notebook), created=created, steps=steps)
    write_record(folder, record)
    note_pipeline(folder)
    return folder


def test_the_newest_run_of_this_notebook_is_shown(home: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    book, other = tmp_path / "book.ipynb", tmp_path / "other" / "more.ipynb"
    assert newest_run(book) is None
    made(book, 1.0, a=StepRecord())
    made(book, 2.0, a=StepRecord())
    made(other, 3.0, a=StepRecord())
    found = newest_run(book)
    assert found is not None
    assert found.record.name == "book-2"
    assert run_of(book, "book-1").record.name == "book-1"
    for name in ("more-1", "book-3", "../book-1"):
        with pytest.raises(UnknownRun):
            run_of(book, name)


def test_steps_that_no_command_runs_any_more_are_lost(home: Path, tmp_path: Path) -> None:
    steps = {"a": StepRecord(state="running", run="book-1-a"), "b": FAILED, "c": StepRecord(state="waiting")}
    folder = made(tmp_path / "book.ipynb", 1.0, **steps)
    found = noted("book-1")
    assert found is not None
    with held(folder):
        going = state_of(found)
    assert not going.over
    assert [step.state for step in going.steps] == ["running", "failed", "waiting"]
    ended = state_of(found)
    assert ended.over
    assert [step.state for step in ended.steps] == ["lost", "failed", "lost"]
    with pytest.raises(UnknownRun, match="has not run"):
        last_lines(found, "c")


def test_a_failure_names_the_cell_that_ran_by_its_id(home: Path, tmp_path: Path) -> None:
    folder = made(tmp_path / "book.ipynb", 1.0, b=FAILED)
    found = noted("book-1")
    assert found is not None
    assert state_of(found).steps[0].cell_id == ""  # the executed notebook is not there
    write_book(folder.path / "notebook.ipynb", [("", "1"), ("step:b", "raise ValueError")])
    assert state_of(found).steps[0].cell_id == "cell-1"  # cells are numbered from 1, ids of the tests' from 0


def test_the_command_that_a_button_means() -> None:
    notebook = Path("books", "my book.ipynb")
    asked = Asked(path="my book.ipynb", parameters={"lr": "0.1 or so"}, image="x")
    words = [sys.executable, "-m", "echelon", "notebook", "run", "books/my book.ipynb"]
    assert command_of(notebook, asked, "/usr/bin/python3") == [
        *words, "--on", "local", "--param", "lr=0.1 or so", "--python", "/usr/bin/python3",
    ]  # fmt: skip
    asked = Asked(path="my book.ipynb", in_cluster=True, start="train", image="my/torch")
    assert command_of(notebook, asked, "python3") == [
        *words,
        "--on",
        "k8s",
        "--from",
        "train",
        "--image",
        "my/torch",
    ]
