"""The page of an executed notebook: by nbconvert, and where it is not installed, our own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.notebook.books import read_book

from echelon.notebook.kept.folder import PipelineRecord, StepRecord
from echelon.notebook.kept.report import as_page, with_outputs

HTML = {
    "output_type": "display_data",
    "metadata": {},
    "data": {"text/html": "<b>bold</b><script>alert(1)</script>", "text/plain": "bold"},
}
PRINTED = {"output_type": "stream", "name": "stdout", "text": "a < b\n"}


def page_of(folder: Path) -> str:
    pipeline = read_book(folder, [("step:load", "x = 1"), ("step:train prev:load", "y = x")])
    document = json.loads(json.dumps(pipeline.notebook.document))
    document["cells"].append(
        {"cell_type": "markdown", "id": "text", "metadata": {}, "source": "# A *title*\n\nand `code`"}
    )
    steps = {"load": StepRecord(state="succeeded"), "train": StepRecord(state="failed", reason="<no data>")}
    record = PipelineRecord(name="book-1", notebook="", created=0.0, steps=steps)
    return as_page(with_outputs(document, {1: [PRINTED], 2: [HTML]}), pipeline, record)


def check_both(page: str) -> None:
    assert "cell 2 · step train" in page
    assert "&lt;no data&gt;" in page
    assert "a &lt; b" in page
    assert "<script" not in page
    assert "://" not in page  # it needs nothing from elsewhere


def test_nbconvert_renders_markdown_and_takes_scripts_out(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    check_both(page)
    assert "<em>title</em>" in page
    assert "<code>code</code>" in page
    assert "<b>bold</b>" in page


def test_without_it_there_is_a_page_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nbconvert", None)
    page = page_of(tmp_path)
    check_both(page)
    assert "# A *title*" in page
    assert "<iframe sandbox" in page
