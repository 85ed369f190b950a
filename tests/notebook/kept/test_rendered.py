"""Cells as Jupyter shows them."""

from __future__ import annotations

import warnings

import pytest

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
