"""The page of an executed notebook: by nbconvert, and where it is not installed, our own."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from tests.conftest import PATIENCE
from tests.notebook.books import read_book

from echelon.notebook.kept.folder import PipelineRecord, StepRecord
from echelon.notebook.kept.report import as_page, rendered_cells, with_outputs

pytest.importorskip("nbconvert", reason="the extra `notebook` is not installed")


@pytest.mark.parametrize("minor", [0, 4, 5])
def test_a_notebook_whose_cells_have_no_ids_is_shown_without_a_word(minor: int) -> None:
    cell = {"cell_type": "code", "metadata": {}, "source": "x = 1", "outputs": [], "execution_count": None}
    document = {"cells": [cell, dict(cell)], "metadata": {}, "nbformat": 4, "nbformat_minor": minor}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rendered_cells(document, {2: "step b"})
    assert found is not None
    assert found[0].index("x") < found[0].index("step b")


def test_what_shows_cells_is_loaded_beside_something_else() -> None:
    code = """
import sys, threading
from echelon.notebook.kept.report import load_beside
assert "nbconvert" not in sys.modules
for _ in range(2):
    load_beside()
assert [each.name for each in threading.enumerate()].count("nbconvert") <= 1
for each in threading.enumerate():
    if each.name == "nbconvert":
        each.join()
assert "nbconvert" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


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
