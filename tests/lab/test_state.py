"""A pipeline run as the panel shows it, and the command that starts one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.notebook.books import write_book

from echelon.engines.local.engine import LocalEngine
from echelon.errors import UnknownRun
from echelon.lab.requests import Asked
from echelon.lab.starting import command_of, continued
from echelon.lab.state import last_lines, newest_run, place_of, run_of, state_of
from echelon.model.engine.traits import Where
from echelon.model.output.log import LogLine
from echelon.notebook.execution.running import Request, run_notebook
from echelon.notebook.kept.folder import (
    PipelineFolder,
    PipelineRecord,
    StepRecord,
    held,
    make_folder,
    write_record,
)
from echelon.notebook.kept.noted import note_pipeline, noted
from echelon.preparation.sources import Target

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


def test_a_run_in_a_cluster_is_looked_for_where_its_command_put_it(home: Path, tmp_path: Path) -> None:
    record = PipelineRecord(
        name="book-1", notebook=str(tmp_path / "book.ipynb"), created=1.0, on="the cluster"
    )
    assert place_of(record) == Target(on="k8s")
    (tmp_path / "pyproject.toml").write_text('[tool.echelon]\nnamespace = "team"\ncontext = "own"\n')
    assert place_of(record) == Target(on="k8s", context="own", namespace="team")
    record = replace(record, context="other", namespace="mine")
    assert place_of(record) == Target(on="k8s", context="other", namespace="mine")
    asked = continued(Asked(path="book.ipynb", in_cluster=True, start="train"), record)
    assert (asked.context, asked.namespace) == ("other", "mine")


def test_a_failure_names_the_cell_that_ran_by_its_id(home: Path, tmp_path: Path) -> None:
    folder = made(tmp_path / "book.ipynb", 1.0, b=FAILED)
    found = noted("book-1")
    assert found is not None
    assert state_of(found).steps[0].cell_id == ""  # the executed notebook is not there
    write_book(folder.path / "notebook.ipynb", [("", "1"), ("step:b", "raise ValueError")])
    assert state_of(found).steps[0].cell_id == "cell-1"  # cells are numbered from 1, ids of the tests' from 0


class InACluster(LocalEngine):
    """Runs here, as far as its steps go."""

    where = Where(context="then", namespace="team")


class Nobody:
    """Watches nothing."""

    def changed(self, step: str, record: StepRecord) -> None: ...

    def line(self, step: str, line: LogLine) -> None: ...

    def notice(self, text: str) -> None: ...


def test_a_run_remembers_the_context_that_was_current(home: Path, tmp_path: Path) -> None:
    """Nobody had named it: `kubectl config use-context` must not lead elsewhere afterwards."""
    book = tmp_path / "book.ipynb"
    write_book(book, [("step:a", "x = 1")])
    run_notebook(Request(notebook=book, parameters={}, root=tmp_path / "runs"), InACluster(), Nobody())
    found = noted("book-1")
    assert found is not None
    record = replace(found.record, on="the cluster")
    assert place_of(record) == Target(on="k8s", context="then", namespace="team")


def test_the_command_that_a_button_means() -> None:
    notebook = Path("books", "my book.ipynb")
    asked = Asked(path="my book.ipynb", parameters={"lr": "0.1 or so"}, image="x")
    words = [sys.executable, "-m", "echelon", "notebook", "run", "books/my book.ipynb"]
    assert command_of(notebook, asked, "/usr/bin/python3") == [
        *words, "--on", "local", "--param", "lr=0.1 or so", "--python", "/usr/bin/python3",
    ]  # fmt: skip
    asked = Asked(path="my book.ipynb", no_gpus=True)
    assert command_of(notebook, asked, None) == [*words, "--on", "local", "--no-gpus"]
    asked = Asked(path="my book.ipynb", in_cluster=True, start="train", image="my/torch")
    assert command_of(notebook, asked, "python3") == [
        *words, "--on", "k8s", "--from", "train", "--image", "my/torch",
    ]  # fmt: skip
    asked = Asked(path="b.ipynb", in_cluster=True, volume="new:1Gi@fast", context="own", namespace="team")
    assert command_of(notebook, asked, None) == [
        *words, "--on", "k8s", "--volume", "new:1Gi@fast", "--context", "own", "--namespace", "team",
    ]  # fmt: skip
