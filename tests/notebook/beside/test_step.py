"""What a step finds of itself in the folder of its results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.notebook.books import new_folder, read_book, run_inside

from echelon.notebook.beside.step import CELLS, DONE, FAILURE, clear


@pytest.mark.parametrize(("restart", "stays"), [("1", True), ("0", False)])
def test_a_worker_that_fails_before_worker_0_starts_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: str, stays: bool
) -> None:
    monkeypatch.setenv("ECHELON_RESTART", "1")
    (tmp_path / FAILURE).write_text(json.dumps({"cell": 2, "restart": restart}))
    for name in (DONE, CELLS):
        (tmp_path / name).touch()
    clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FAILURE] * stays


@pytest.mark.parametrize("left", ["", "[]", "{}", "{"])
def test_a_file_that_was_cut_is_of_no_start(tmp_path: Path, left: str) -> None:
    (tmp_path / FAILURE).write_text(left)
    clear(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_cell_that_leaves_a_closed_file_as_standard_error_is_told_its_own_failure(tmp_path: Path) -> None:
    text = "import sys\nwith open('log.txt', 'w') as sys.stderr:\n    x = 1\nprint(globals()['nope'])"
    pipeline = read_book(tmp_path, [("step:a", text)])
    folder = new_folder(tmp_path / "book-1")
    assert run_inside(pipeline, folder) == {"a": 1}
    told = json.loads((folder.results("a") / FAILURE).read_text())
    assert (told["error"], told["cell"], told["line"]) == ("KeyError: 'nope'", 1, 4)
