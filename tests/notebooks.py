"""Cells run by a real kernel, as in a user's notebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PATIENCE


def run_cells(cells: Sequence[str], folder: Path) -> Any:
    """Run a notebook of these cells in a folder, and return it with its outputs."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(
        book,
        timeout=int(2 * PATIENCE),
        startup_timeout=int(PATIENCE),
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    return book
