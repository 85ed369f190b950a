"""Cells as Jupyter shows them."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
from tests.conftest import PATIENCE

from echelon.notebook.kept.rendered import rendered_cells

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
from echelon.notebook.kept.rendered import load_beside
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
