"""Pages in a real browser, kept as pictures for a person to look at: a notebook's pipeline as it runs, and
every page in every form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.generate.dashboard import PICTURES, SHOWN, every_form
from tests.conftest import PATIENCE, wait_until
from tests.notebook.books import write_book
from tests.ui.chromium import ROOT, start_visitor, the_chromium
from tests.ui.test_browser import ended, start_dashboard

_LARGEST = 120_000  # bytes of a picture in the documents
BOOK = [
    ("imports", "import pathlib, time"),
    ("step:load", "x = 2\nprint('loaded')"),
    ("step:train prev:load", "while not pathlib.Path('go.txt').exists():\n    time.sleep(0.05)\ny = x + 1"),
    ("step:report prev:train", "print(y)"),
]


def folder_for(tmp_path: Path, name: str) -> Path:
    made = Path(os.environ.get("ECHELON_SCREENSHOTS") or tmp_path / "screenshots") / name
    made.mkdir(parents=True, exist_ok=True)
    return made


@pytest.mark.slow
def test_a_pipeline_is_watched_in_a_browser(home: Path, tmp_path: Path) -> None:
    chromium = the_chromium()
    write_book(Path("book.ipynb"), BOOK)
    said, work = tmp_path / "said", Path("runs", "book-1", "work")
    with said.open("w") as out, (tmp_path / "ran").open("w") as ran:
        running = subprocess.Popen(
            [sys.executable, "-m", "echelon.cli.main", "notebook", "run", "book.ipynb"],
            stdout=ran,
            stderr=subprocess.STDOUT,
            text=True,
        )
        dashboard, address = start_dashboard()
        with ended(running, dashboard):
            wait_until(lambda: Path("runs/book-1/steps/train").exists(), "the second step")
            visitor = start_visitor("visit_pipeline", chromium, address, folder_for(tmp_path, ""), out=out)
            with ended(visitor):
                wait_until(
                    lambda: "seen" in said.read_text() or visitor.poll() is not None, "the visitor to look"
                )
                (work / "go.txt").touch()
                assert visitor.wait(PATIENCE) == 0, said.read_text()
            assert running.wait(PATIENCE) == 0, (tmp_path / "ran").read_text()
    assert said.read_text().split() == ["seen", "followed"]


@pytest.mark.slow
def test_every_page_in_every_form(home: Path, tmp_path: Path) -> None:
    """Wide and narrow, light and dark: no page is wider than its screen, and each comes to be drawn."""
    the_chromium()
    folder = folder_for(tmp_path, "pages")
    made = subprocess.run(
        [sys.executable, "-m", "docs.generate.dashboard", str(folder)],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert {path.stem for path in folder.glob("*.png")} >= {each.name for each in every_form()}


def test_the_pictures_of_the_documents_are_small_and_shown() -> None:
    names = {f"{each.name}.png" for each in SHOWN}
    assert {path.name for path in PICTURES.glob("*.png")} == names
    assert all((PICTURES / name).stat().st_size < _LARGEST for name in names)
    page = (PICTURES.parent / "ui.md").read_text()
    assert all(f"(pictures/{name})" in page for name in names)
