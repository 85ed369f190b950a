"""The list of runs: what is over is read once, and what cannot be read is listed."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from pathlib import Path

import pytest
from tests.parents import end, parent, step_run

from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import store
from echelon.model import ends
from echelon.model.job import Job
from echelon.model.program import Step


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the record of each run is read."""
    found: Counter[str] = Counter()
    read = store.read_record

    def counted(folder):  # type: ignore[no-untyped-def]
        found[folder.path.name] += 1
        return read(folder)

    monkeypatch.setattr(store, "read_record", counted)
    return found


@pytest.mark.slow
def test_what_is_over_is_read_once_by_a_page(home: Path, reads: Counter[str]) -> None:
    run = parent(Step(name="a", state="succeeded"))
    step_run("a").wait(show=False)
    engine = LocalEngine()
    reads.clear()
    before = engine.runs()
    assert reads["t-1-a"] == 1
    end(run)
    after = engine.runs()
    assert {row.name: row.state for row in before} == {"t-1": "running", "t-1-a": "succeeded"}
    assert {row.name: row.state for row in after} == {"t-1": "succeeded", "t-1-a": "succeeded"}
    reads.clear()
    assert engine.runs() == after
    assert reads == Counter()
    (home / "runs" / "t-1-a" / "record.json").write_text("{")  # it is looked at anew
    assert {row.name: row.state for row in engine.runs()} == {"t-1": "succeeded", "t-1-a": "damaged"}


def damage(path: Path, how: str) -> None:
    """Leave something else where a file of a run's folder is."""
    path.unlink(missing_ok=True)
    match how:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(path.parent):
                listening.bind(path.name)
        case "empty":
            path.touch()
        case "link":
            path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("folder", "is not a file"),
        ("pipe", "is not a file"),
        ("socket", "is not a file"),
        ("empty", "is empty"),
        ("link", "is missing"),
        ("nothing", "is missing"),
    ],
)
@pytest.mark.parametrize("file", ["record.json", "final.json", "events.jsonl"])
def test_what_is_no_file_is_a_damaged_run_and_keeps_nobody_waiting(
    home: Path, file: str, how: str, problem: str
) -> None:
    if (file, how) == ("final.json", "nothing"):
        return  # of a run that has not ended
    engine = LocalEngine()
    ref = engine.record(Job(name="t-1", command=("true",)), None)
    folder = engine.store.dir(ref.name)
    store.write_final(folder, ends.stopped("stopped by a test", at=1.0))
    assert [row.state for row in engine.runs()] == ["stopped"]
    damage(home / "runs" / "t-1" / file, how)
    (row,) = engine.runs()
    assert (row.state, row.reason) == ("damaged", f"{home / 'runs' / 't-1' / file} {problem}")
