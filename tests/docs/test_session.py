"""The README's picture: what a real session shows is in it, line by line, and it is an SVG."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from docs.generate.session import COLUMNS, PICTURE, Step, draw, record

SVG = "{http://www.w3.org/2000/svg}"


def lines_of(picture: str) -> list[str]:
    """The terminal's lines, as a reader of the picture sees them."""
    root = ET.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


@pytest.mark.slow
def test_a_real_session_is_drawn_with_the_lines_of_every_rank(home: Path) -> None:
    Path("hello.py").write_text("import os\nprint('hello from', os.environ['ECHELON_RANK'], '<&>')\n")
    environment = {**os.environ, "ECHELON_HOME": str(home)}
    run = f"{sys.executable} -m echelon.cli.main run -n 2 --name hello hello.py"
    steps = record([run, "cat no-such-file"], Path.cwd(), environment)
    shown = lines_of(draw(steps, columns=200))
    assert shown[0] == f"$ {run}"
    assert "echelon: run hello: 2 workers, plain" in shown
    assert "[0] hello from 0 <&>" in shown
    assert "[1] hello from 1 <&>" in shown
    assert any(line.startswith("echelon: succeeded in ") for line in shown)
    assert any("No such file or directory" in line for line in shown)
    assert str(Path.cwd()) not in "\n".join(shown)


def test_colours_become_colours_and_long_lines_wrap() -> None:
    picture = draw([Step("x", "\x1b[36m[0]\x1b[0m " + "word " * 30 + "\n")], columns=80)
    assert '<tspan fill="#' in picture
    assert "\x1b" not in picture
    assert all(len(line) <= 80 for line in lines_of(picture))


def test_the_picture_of_the_readme_shows_a_success_and_a_root_cause() -> None:
    shown = lines_of(PICTURE.read_text(encoding="utf-8"))
    assert all(len(line) <= COLUMNS for line in shown)
    assert {line[:3] for line in shown} >= {"[0]", "[1]"}
    text = "\n".join(shown)
    assert "succeeded in" in text
    assert "first to fail: rank 1" in text
    assert "/tmp" not in text
