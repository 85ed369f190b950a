"""A pipeline in the foreground of a terminal."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.cli.terminal import Terminal
from tests.notebook.books import write_book

HOLD = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.1)"


def test_the_steps_that_run_stand_at_the_bottom(home: Path) -> None:
    cells = [
        ("step:load", "print('loaded')"),
        ("step:left prev:load", HOLD),
        ("step:right prev:load", HOLD),
        ("step:last prev:left prev:right", "print('last')"),
    ]
    write_book(Path("book.ipynb"), cells)
    with closing(Terminal("notebook", "run", "book.ipynb")) as terminal:
        terminal.expect_lines(
            r"run book-1: notebook book.ipynb",
            r"^\[load\] loaded",
            r"step load succeeded",
            r"^\[left\] running",
            r"^\[right\] running",
        )
        Path("runs", "book-1", "work", "go").touch()
        assert terminal.end() == 0
        assert not [line for line in terminal.lines if "running" in line]
        assert "[last] last" in terminal.lines
