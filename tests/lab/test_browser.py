"""A notebook that is tagged and run by buttons, in a real JupyterLab in a real browser."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import PATIENCE
from tests.lab.served import TOKEN, jupyter
from tests.notebook.books import write_book
from tests.ui.chromium import the_chromium

BOOK = [
    ("", "factor = 2"),
    ("", "data = [1, 2, 3]"),
    ("", "total = sum(data) * factor\nprint('total', total)"),
]


@pytest.mark.slow
def test_cells_are_tagged_and_run_by_buttons(home: Path, tmp_path: Path) -> None:
    chromium = the_chromium()
    if importlib.util.find_spec("jupyterlab") is None:
        pytest.skip("needs JupyterLab: uv pip install --group browser")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    write_book(Path("book.ipynb"), BOOK, {"kernelspec": kernel})
    shots = Path(os.environ.get("ECHELON_SCREENSHOTS") or tmp_path / "screenshots")
    shots.mkdir(parents=True, exist_ok=True)
    root = Path(__file__).parents[2]
    with jupyter(Path.cwd(), tmp_path / "jupyter", "jupyterlab") as served:
        address = f"{served.origin}/lab/tree/book.ipynb?token={TOKEN}"
        visitor = subprocess.run(
            [sys.executable, "-m", "tests.lab.visit", chromium, address, str(shots)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])},
            timeout=10 * PATIENCE,
            check=False,
        )
    assert visitor.returncode == 0, f"{visitor.stdout}\n{visitor.stderr}"
    assert visitor.stdout.split() == ["opened", "tagged", "run", "continued"]
    assert "step:train" in Path("book.ipynb").read_text()
