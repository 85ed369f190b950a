"""Whatever is found in a pipeline's folder, as after a power cut: no traceback, and what is known is used."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from tests.notebook.books import new_folder, read_book

from echelon.engines import durable
from echelon.errors import StateTrouble
from echelon.notebook.kept.folder import PipelineRecord, published, read_record, write_record
from echelon.notebook.kept.report import write_reports

NOISE = {
    "empty": b"",
    "noise": random.Random(7).randbytes(300),
    "nested": b'{"x":' + b"[" * 100_000,
    "other": b'{"kind": "note", "at": 1.0}\n',
    "a list": b"[]\n",
    "zeros": bytes(300),
}
RECORD = PipelineRecord(name="book-1", notebook="book.ipynb", created=1.0)


@pytest.mark.parametrize("how", NOISE)
def test_a_damaged_record_is_said_to_be_one(tmp_path: Path, how: str) -> None:
    folder = new_folder(tmp_path / "book-1")
    (folder.path / "pipeline.json").write_bytes(NOISE[how])
    with pytest.raises(StateTrouble, match=r"pipeline\.json cannot be read"):
        read_record(folder)


@pytest.mark.parametrize("how", NOISE)
def test_what_a_step_has_handed_on_is_damaged(tmp_path: Path, how: str) -> None:
    folder = new_folder(tmp_path / "book-1")
    (folder.values / "load").mkdir()
    (folder.values / "load" / "published.json").write_bytes(NOISE[how])
    assert "names" not in published(folder, "load")


@pytest.mark.parametrize("how", NOISE)
def test_damaged_outputs_of_one_step_cost_no_other_and_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setitem(sys.modules, "nbconvert", None)  # to import it takes seconds
    pipeline = read_book(tmp_path, [("step:load", "x = 1"), ("step:train prev:load", "print(x)")])
    folder = new_folder(tmp_path / "book-1")
    said = {"cell": 2, "outputs": [{"output_type": "stream", "name": "stdout", "text": "1\n"}]}
    for step, content in (("load", NOISE[how]), ("train", json.dumps(said).encode() + b"\n")):
        folder.results(step).mkdir(parents=True)
        (folder.results(step) / "cells.jsonl").write_bytes(content)
    write_reports(pipeline, folder, RECORD)
    made = json.loads((folder.path / "notebook.ipynb").read_text())
    assert [cell["outputs"] for cell in made["cells"]] == [[], said["outputs"]]


def test_a_record_is_forced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--from` goes on by what it says."""
    folder = new_folder(tmp_path / "book-1")
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync_folder", synced.append)
    write_record(folder, RECORD)
    assert synced == [folder.path]
    assert read_record(folder) == RECORD
