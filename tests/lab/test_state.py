"""A notebook's run as the panel shows it, and the command that starts one."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.notebook.books import write_book
from tests.parents import at_work

from echelon.children import listed
from echelon.engines.local.engine import LocalEngine
from echelon.errors import UnknownRun
from echelon.handle import Run
from echelon.lab import starting
from echelon.lab.requests import Asked
from echelon.lab.starting import StartFailed, command_of, continued, start
from echelon.lab.state import last_lines, newest_run, place_of, program_of, run_of, state_of, stop
from echelon.model import ends
from echelon.model.event import Event
from echelon.model.program import Step
from echelon.notebook.kept.folder import StepRecord
from echelon.preparation.sources import Target
from echelon.ui.reading import Reading

DONE, WAITS = Step(name="a", state="succeeded", run="local://book-1-a"), Step(name="c", after=("b",))
RUNS = Step(name="b", state="running", run="local://book-1-b", started=1.0)
FAILED = Step(name="b", state="failed", run="local://book-1-b", cell=2, line=1, reason="ValueError", exit_code=1)
LEFT_OUT = Step(name="c", state="not-reached", reason="step b failed", after=("b",))
KILLED = Event(kind="finished", at=9.0, outcome="lost", exit_code=117)


def test_the_newest_run_of_this_notebook_is_shown(home: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    book, other = tmp_path / "book.ipynb", tmp_path / "other" / "more.ipynb"
    assert newest_run(book) is None
    with ExitStack() as stack:
        for name, notebook in (("book-1", book), ("book-2", book), ("more-1", other)):
            stack.enter_context(at_work(name, notebook=notebook))
        found = newest_run(book)
        assert found is not None
        assert found.ref.name == "book-2"
        assert run_of(book, "book-1").ref.name == "book-1"
        (tmp_path / "link").symlink_to(tmp_path)  # as Jupyter's root may be
        assert newest_run(tmp_path / "link" / "book.ipynb") == found
        assert run_of(tmp_path / "link" / "book.ipynb", "book-1").ref.name == "book-1"
        for name in ("more-1", "book-3", "../book-1"):
            with pytest.raises(UnknownRun):
                run_of(book, name)


@pytest.mark.parametrize(
    ("end", "changes", "expected"),
    [
        (None, (), ("running", ["succeeded", "running", "waiting"])),
        (
            ends.failed("rank 0 exited with 1", at=9.0, kind="exit", exit_code=1),
            (FAILED, LEFT_OUT),
            ("failed", ["succeeded", "failed", "not-reached"]),
        ),
        (ends.stopped("by ann", at=9.0), (), ("stopped", ["succeeded", "stopped", "not-reached"])),
        (ends.timed_out("after 1 h", at=9.0), (), ("timed-out", ["succeeded", "stopped", "not-reached"])),
        (KILLED, (), ("lost", ["succeeded", "lost", "not-reached"])),
        ("the supervisor too", (), ("lost", ["succeeded", "lost", "not-reached"])),
    ],
)
def test_it_stands_the_same_everywhere(
    home: Path,
    tmp_path: Path,
    end: Event | str | None,
    changes: tuple[Step, ...],
    expected: tuple[str, list[str]],
) -> None:
    """In the rows of `ps`, in `status`, on the dashboard and in the panel."""
    with at_work("book-1", DONE, RUNS, WAITS, notebook=tmp_path / "book.ipynb") as there:
        there.tell(*changes)
        if isinstance(end, Event):
            there.end(end)
        with ExitStack() as stack:
            if isinstance(end, str):
                stack.callback(lambda: None)
    del stack


def test_a_failure_has_its_traceback_and_the_cell_that_ran_by_its_id(home: Path, tmp_path: Path) -> None:
    with at_work("book-1", FAILED, notebook=tmp_path / "book.ipynb") as there:
        there.keep(b=StepRecord(traceback="Traceback", metrics={"loss": 0.5}))
        assert state_of(there.record).steps[0].cell_id == ""
        there.end(ends.failed("", at=9.0, kind="exit", exit_code=1))
        ran = state_of(there.record)
        assert (ran.steps[0].traceback, ran.steps[0].cell_id) == ("Traceback", "")  # no executed notebook
        assert ran.metrics == {"loss": 0.5}
        assert ran.results == "runs/book-1"
        cells = [("", "1"), ("step:b", "raise ValueError")]
        write_book(Path(there.record.results, "notebook.ipynb"), cells)
        # Cells are numbered from 1, the ids of the tests from 0.
        assert state_of(there.record).steps[0].cell_id == "cell-1"
        with pytest.raises(UnknownRun, match="has not run"):
            last_lines(there.record, "c")
