"""A notebook's run as the panel shows it, the same as everywhere, and the command that starts one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import PATIENCE
from tests.notebook.books import write_book
from tests.parents import IN_CLUSTER, NOTEBOOK, end, kill, parent, step_run, tell

from echelon.children import folded, listed
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import rundir
from echelon.errors import UnknownRun
from echelon.handle import Run
from echelon.lab.requests import RunRequest
from echelon.lab.state import (
    StartFailed,
    command_of,
    continued,
    last_lines,
    newest_run,
    place_of,
    run_of,
    start,
    state_of,
    stop,
)
from echelon.model.program import Program, Step
from echelon.notebook.kept.folder import PipelineFolder, PipelineRecord, StepRecord, write_record
from echelon.preparation.sources import Target
from echelon.ui.reading import Reading

FAILED = Step(name="b", state="failed", run="local://t-1-b", cell=2, line=1, reason="ValueError", exit_code=1)
LEFT_OUT = Step(name="c", state="not-reached", reason="step b failed", after=("b",))
STEPS = (
    Step(name="a", state="succeeded", run="local://t-1-a"),
    Step(name="b", state="running", run="local://t-1-b", started=1.0),
    Step(name="c", after=("b",)),
)


def of(notebook: Path) -> Program:
    return replace(NOTEBOOK, source=str(notebook))


@pytest.fixture
def book(home: Path) -> Path:
    return write_book(Path.cwd() / "book.ipynb", [("", "1"), ("step:b", "raise ValueError")])


def test_the_newest_run_of_this_notebook_is_shown(book: Path) -> None:
    (book.parent / "other").mkdir()
    other = book.parent / "other" / "more.ipynb"
    assert newest_run(book) is None
    for name, notebook in (("book-1", book), ("book-2", book), ("more-1", other)):
        end(parent(name=name, program=of(notebook)))
    newest = newest_run(book)
    assert newest is not None
    assert newest.ref.name == "book-2"
    assert run_of(book, "book-1").ref.name == "book-1"
    (book.parent / "link").symlink_to(book.parent)  # as Jupyter's root may be
    assert newest_run(book.parent / "link" / "book.ipynb") == newest
    assert run_of(book.parent / "link" / "book.ipynb", "book-1").ref.name == "book-1"
    step_run("alone")
    for name in ("more-1", "book-3", "../book-1", "t-1-alone"):
        with pytest.raises(UnknownRun):
            run_of(book, name)


def fails(run: Run) -> None:
    tell(run, FAILED, LEFT_OUT)
    end(run, 1)


def is_stopped(run: Run) -> None:
    assert stop(run_of(Path.cwd() / "book.ipynb", run.name)) is None
    run.wait(PATIENCE, show=False)


def loses_its_supervisor(run: Run) -> None:
    told = rundir.read_json(LocalEngine().store.dir(run.name).supervisor)
    assert told is not None
    os.kill(int(str(told["pid"])), signal.SIGKILL)
    run.wait(PATIENCE, show=False)


@pytest.mark.core
@pytest.mark.parametrize(
    ("happens", "state", "steps"),
    [
        (lambda _run: None, "running", ["succeeded", "running", "waiting"]),
        (fails, "failed", ["succeeded", "failed", "not-reached"]),
        (is_stopped, "stopped", ["succeeded", "stopped", "not-reached"]),
        (kill, "lost", ["succeeded", "lost", "not-reached"]),
        (loses_its_supervisor, "lost", ["succeeded", "lost", "not-reached"]),
    ],
)
def test_it_stands_the_same_everywhere(
    book: Path, happens: Callable[[Run], object], state: str, steps: list[str]
) -> None:
    """In the row of `ps`, in `status`, on the dashboard and in the panel."""
    run = parent(*STEPS, program=of(book))
    happens(run)
    status, engine = run.status(), LocalEngine()
    row, panel, reading = folded(listed(engine))[0], state_of(run_of(book, "t-1")), Reading(engine)
    with closing(reading.feeds):
        page, shown = reading.run("t-1")["status"], reading.nested()[0]
    assert {status.state, row.state, panel.state, page["state"], shown["state"]} == {state}
    reasons = {status.reason, row.reason, panel.reason or None, page["reason"], shown["reason"]}
    assert len(reasons) == 1
    assert [step.state for step in status.steps] == steps
    assert [step.state for step in panel.steps] == [step["state"] for step in page["steps"]] == steps
    assert (row.steps, row.steps_done) == (shown["steps"], shown["steps_done"]) == (3, 1)
    assert panel.over == (state != "running")


def test_a_failure_has_its_traceback_and_the_cell_that_ran_by_its_id(book: Path) -> None:
    run = parent(FAILED, program=of(book))
    record = run_of(book, "t-1")
    folder = PipelineFolder(Path(record.results))
    kept = {"b": StepRecord(traceback="Traceback", metrics={"loss": 0.5})}
    write_record(folder, PipelineRecord(name="t-1", notebook=str(book), created=1.0, steps=kept))
    end(run, 1)
    found = state_of(record)
    assert (found.steps[0].traceback, found.steps[0].cell_id) == ("Traceback", "")  # no executed notebook
    assert (found.metrics, found.results, found.in_cluster) == ({"loss": 0.5}, "runs/t-1", False)
    (folder.path / "notebook.ipynb").write_bytes(book.read_bytes())
    assert (
        state_of(record).steps[0].cell_id == "cell-1"
    )  # cells are numbered from 1, ids of the tests' from 0


def test_the_last_lines_of_a_step(book: Path) -> None:
    ran = step_run("a", "sh", "-c", "for i in $(seq 300); do echo line $i; done")
    ran.wait(PATIENCE, show=False)
    end(parent(replace(STEPS[0], run=str(ran)), STEPS[2], program=of(book)))
    record = run_of(book, "t-1")
    lines = last_lines(record, "a")
    assert (len(lines), lines[-1]) == (200, "line 300")
    assert [step.has_output for step in state_of(record).steps] == [True, False]
    with pytest.raises(UnknownRun, match="has not run"):
        last_lines(record, "c")


def test_a_run_in_a_cluster_is_looked_for_where_its_command_put_it(book: Path) -> None:
    end(parent(program=replace(of(book), place="the cluster")))
    record = run_of(book, "t-1")
    assert place_of(record) == Target(on="k8s")
    Path("pyproject.toml").write_text('[tool.echelon]\nnamespace = "team"\ncontext = "own"\n')
    assert place_of(record) == Target(on="k8s", context="own", namespace="team")
    program = replace(IN_CLUSTER, source=str(book))  # whatever `kubectl config use-context` has changed since
    record = replace(record, job=replace(record.job, program=program))
    assert place_of(record) == Target(on="k8s", context="c", namespace="team")
    asked = continued(RunRequest(path="book.ipynb", in_cluster=True, start="train"), program)
    assert (asked.context, asked.namespace) == ("c", "team")
    assert state_of(record).in_cluster


def test_a_run_is_started_by_the_command_or_what_that_says_is_told(book: Path) -> None:
    with pytest.raises(StartFailed, match="--param lr"):
        start(book, RunRequest(path="book.ipynb", parameters={"lr": "1"}), None)
    assert newest_run(book) is None
    assert start(book, RunRequest(path="book.ipynb"), sys.executable) == "book-1"
    Run(run_of(book, "book-1").ref, LocalEngine()).wait(PATIENCE, show=False)
    assert [step.state for step in state_of(run_of(book, "book-1")).steps] == ["failed"]


def test_the_command_that_a_button_means() -> None:
    notebook = Path("books", "my book.ipynb")
    asked = RunRequest(path="my book.ipynb", parameters={"lr": "0.1 or so"}, image="x")
    words = [sys.executable, "-m", "echelon", "notebook", "run", "-d", "-o", "json", "books/my book.ipynb"]
    assert command_of(notebook, asked, "/usr/bin/python3") == [
        *words, "--on", "local", "--param", "lr=0.1 or so", "--python", "/usr/bin/python3",
    ]  # fmt: skip
    asked = RunRequest(path="my book.ipynb", no_gpus=True)
    assert command_of(notebook, asked, None) == [*words, "--on", "local", "--no-gpus"]
    asked = RunRequest(path="my book.ipynb", in_cluster=True, start="train", image="my/torch")
    assert command_of(notebook, asked, "python3") == [
        *words, "--on", "k8s", "--from", "train", "--image", "my/torch",
    ]  # fmt: skip
    asked = RunRequest(
        path="b.ipynb", in_cluster=True, volume="new:1Gi@fast", context="own", namespace="team"
    )
    assert command_of(notebook, asked, None) == [
        *words, "--on", "k8s", "--volume", "new:1Gi@fast", "--context", "own", "--namespace", "team",
    ]  # fmt: skip
