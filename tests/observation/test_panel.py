"""A run shows itself in a real kernel: how it stands and its curves, drawn anew while it goes on."""

from __future__ import annotations

import re
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.notebooks import run_cells

# The kernel's own libraries warn about what is none of our business.
pytestmark = pytest.mark.filterwarnings("default")
TRAIN = """
import time
from pathlib import Path
print("step=0 loss=1.0 accuracy=0.1", flush=True)
while not Path("go-on").exists():
    time.sleep(0.05)
print("step=1 loss=0.25 accuracy=0.9", flush=True)
"""


def image_of(page: str) -> ET.Element:
    """The picture in a piece of HTML, which holds it as data: a notebook that is not trusted keeps that."""
    found = re.search(r'<img alt="[^"]*" src="data:image/svg\+xml,([^"]*)">', page)
    assert found is not None, page
    return ET.fromstring(unquote(found[1]))


def texts_of(picture: ET.Element) -> list[str]:
    return [text.text or "" for text in picture.findall(".//{*}text")]


def kinds(cell: Any) -> set[str]:
    return {each["output_type"] for each in cell.outputs}


def test_a_run_is_drawn_while_it_goes_on_and_at_its_end(home: Path) -> None:
    Path("train.py").write_text(TRAIN)
    watch = """
        import time
        import IPython
        seen = []
        publish = IPython.display.publish_display_data
        def watched(data, **more):
            seen.append((more.get("update", False), data["text/html"]))
            publish(data, **more)
        IPython.display.publish_display_data = watched
        import echelon
        run = echelon.run("train.py", name="fm", workers=1)
        run
    """
    meanwhile = """
        while not any("loss" in page for _, page in seen):
            time.sleep(0.05)
        drawn_early = "succeeded" not in seen[-1][1]
        open("go-on", "w").close()
        run.wait(show=False)
        run._display._panel.settle()
        print(drawn_early, [update for update, _ in seen][:2])
    """
    cells = [textwrap.dedent(cell).strip("\n") for cell in (watch, meanwhile, "run", "echelon.attach('fm')")]
    book = run_cells(cells, Path.cwd())
    [live] = book.cells[0].outputs
    assert live["output_type"] == "display_data"
    assert "running" in live["data"]["text/html"] or "succeeded" in live["data"]["text/html"]
    assert book.cells[1].outputs[0]["text"] == "True [False, True]\n"
    for cell in book.cells[2:]:  # over: as any other result, with the same curves
        [output] = cell.outputs
        assert output["output_type"] == "execute_result"
        assert "succeeded" in output["data"]["text/html"]
        picture = image_of(output["data"]["text/html"])
        assert {"loss", "0.25", "accuracy", "0.9", "step"} <= set(texts_of(picture))
        assert len(picture.findall(".//{*}polyline")) == 2


@pytest.mark.slow
def test_a_cell_that_waits_shows_curves_as_they_come_and_once(home: Path) -> None:
    Path("train.py").write_text(TRAIN)
    Path("go-on").touch()
    Path("quiet.py").write_text("print('nothing is measured')")
    cells = [
        "%load_ext echelon",
        "%%echelon -n 2\nfor step in range(5):\n    print(f'step={step} loss={1 / (step + 1)}')",
        "import echelon\nechelon.run('train.py').wait().state",
        "echelon.run('quiet.py').wait().state",
    ]
    _, magic, waited, quiet = run_cells(cells, Path.cwd()).cells
    shown, *rest = magic.outputs  # above what the ranks write
    assert {each["output_type"] for each in rest} == {"stream"}
    assert "succeeded" in shown["data"]["text/html"]  # its last drawing; the run is not shown twice
    assert "loss" in texts_of(image_of(shown["data"]["text/html"]))
    assert kinds(waited) == {"stream", "display_data", "execute_result"}
    place, *rest = quiet.outputs
    assert place["data"]["text/html"] == ""  # nothing is measured: nothing is seen
    assert {each["output_type"] for each in rest} == {"stream", "execute_result"}
