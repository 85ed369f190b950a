"""A notebook that runs in a real cluster by the panel's button, in a real JupyterLab and a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.kubernetes.terminal import Terminal
from tests.lab.test_browser import KERNEL, told_by_visitor
from tests.notebook.books import write_book

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

BOOK = [
    ("pipeline-parameters", "factor = 2"),
    ("step:load", "data = [1, 2, 3]"),
    ("step:train prev:load", "print('total', sum(data) * factor)\nraise ValueError('no luck')"),
]


def test_steps_run_in_pods_by_a_button(
    terminal: Terminal, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(terminal.folder)
    monkeypatch.setenv("KUBECONFIG", str(terminal.kubeconfig))
    monkeypatch.setenv("ECHELON_VISIT_IMAGE", terminal.image)
    write_book(terminal.folder / "book.ipynb", BOOK, KERNEL)
    assert told_by_visitor("cluster", tmp_path) == ["failed", "continued"]
    assert "notebook book.ipynb, 2 steps" in terminal.call("ps", "-a").stdout
    assert terminal.call("wait", "book-1").returncode == 0  # its files are brought home
    assert terminal.call("rm", "book-1").returncode == 0
    terminal.wait_for_nothing("book-1")
