"""Steps taken over from an earlier pipeline run: only what that run wrote itself, and sealed anew."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path

import pytest
from tests.notebook.books import new_folder

from echelon.notebook.beside.store import Store
from echelon.notebook.kept.cache import state_of, take_over
from echelon.notebook.kept.folder import (
    PipelineFolder,
    PipelineRecord,
    StepRecord,
    files_in,
    write_record,
)


def earlier_run(root: Path) -> PipelineFolder:
    folder = new_folder(root / "book-1")
    Store(folder.values, folder.name, folder.secret.read_bytes(), {}, {}).publish(
        "a", {"x": Decimal("1.5")}, {}
    )
    (folder.work / "model.txt").write_text("weights")
    (folder.results("a") / "workers" / "rank-1").mkdir(parents=True)
    (folder.results("a") / "cells.jsonl").write_text("shown")
    step = StepRecord(state="succeeded", key="k", files=files_in(folder.work), metrics={"m": 1})
    write_record(folder, PipelineRecord(name="book-1", notebook="", created=0.0, steps={"a": step}))
    return folder


def test_variables_and_files_come_over(tmp_path: Path) -> None:
    earlier_run(tmp_path)
    folder = new_folder(tmp_path / "book-2")
    assert take_over(folder, "book", "a", "another key") is None
    found = take_over(folder, "book", "a", "k")
    assert found is not None
    assert found.run == "book-1"
    assert found.step.metrics == {"m": 1}
    assert (folder.work / "model.txt").read_text() == "weights"
    store = Store(folder.values, folder.name, folder.secret.read_bytes(), {}, {})
    assert store.load("a", "x", "x") == Decimal("1.5")
    assert (folder.results("a") / "cells.jsonl").read_text() == "shown"  # for the executed notebook
    assert not (folder.results("a") / "workers").exists()


def test_what_the_earlier_run_did_not_write_is_not_taken(tmp_path: Path) -> None:
    earlier = earlier_run(tmp_path)
    folder = new_folder(tmp_path / "book-2")
    meta = earlier.values / "a" / "x" / "meta.json"
    content = json.loads(meta.read_text())
    meta.write_text(json.dumps({**content, "names": ["y"]}))
    assert take_over(folder, "book", "a", "k") is None
    meta.write_text(json.dumps(content))
    (earlier.values / "a" / "x" / "value.pickle").write_bytes(b"other")
    assert take_over(folder, "book", "a", "k") is None
    assert not (folder.values / "a").exists()


def test_files_that_were_changed_since_are_no_result(tmp_path: Path) -> None:
    earlier = earlier_run(tmp_path)
    (earlier.work / "model.txt").write_text("changed later")
    assert take_over(new_folder(tmp_path / "book-2"), "book", "a", "k") is None


def test_files_beside_a_notebook_that_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "out"
    for name in ("data.csv", "pkg/code.py", "book.ipynb", ".hidden", "out/book-1/file", "venv/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()
    before = state_of(tmp_path, results)
    assert state_of(tmp_path, results) == before
    for name in ("book.ipynb", ".hidden", "out/book-1/file", "venv/new"):
        (tmp_path / name).write_text("more")
    assert state_of(tmp_path, results) == before
    (tmp_path / "pkg" / "code.py").write_text("other")
    assert state_of(tmp_path, results) != before
    monkeypatch.setattr("echelon.notebook.kept.cache._MOST", 2)
    assert state_of(tmp_path, results) != state_of(tmp_path, results)
