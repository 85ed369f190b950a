"""A notebook as a plain script: it gives what the pipeline gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.notebook.books import Cells, new_folder, read_book, run_inside

from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.export.script import as_script
from echelon.notebook.kept.folder import published

FAN = [
    ("imports", "from __future__ import annotations\nimport math, pathlib"),
    ("pipeline-parameters", "n: int = 3\nscale = 1.5"),
    ("functions", "def scaled(x: Undefined) -> float:\n    return x * scale"),
    ("step:load", "data = list(range(n))\npathlib.Path('made.txt').write_text('by load')"),
    ("step:left prev:load", "left = sum(scaled(x) for x in data)"),
    ("step:right prev:load", "right = math.prod(x + 1 for x in data)\ndisplay(right)"),
    ("step:join prev:left prev:right", "total = left + right\nown = pathlib.Path('made.txt').read_text()"),
    ("pipeline-metrics", "print(total)\nprint(own)"),
]
# `reads` must see what `load` made: `changes` does not come before it.
APART = [
    ("step:load", "data = [1, 2]"),
    ("step:changes prev:load", "data.append(3)\nchanged = len(data)"),
    ("step:reads prev:load", "seen = len(data)"),
    ("step:join prev:changes prev:reads", "both = (changed, seen)"),
    ("pipeline-metrics", "both"),
]
MAGICS = [
    ("step:a", "%matplotlib inline\n!echo from the shell\nfound = !echo one; echo two"),
    ("step:b prev:a", "count = len(found)"),
    ("pipeline-metrics", "count"),
]
WORKERS = [
    ("step:a distribute workers:2", "import os\ncount = int(os.environ['ECHELON_WORKERS'])"),
    ("step:b prev:a", "more = count + 1"),
    ("pipeline-metrics", "more"),
]


def run_script(text: str, folder: Path) -> str:
    folder.mkdir()
    (folder / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-I", "script.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("cells", "parameters"),
    [(FAN, {}), (FAN, {"n": "4", "scale": "0.5"}), (APART, {}), (MAGICS, {})],
    ids=["fan", "fan with parameters", "branches apart", "magics"],
)
def test_its_metrics_are_those_of_the_pipeline(
    tmp_path: Path, cells: Cells, parameters: dict[str, str]
) -> None:
    pipeline = read_book(tmp_path, cells, parameters)
    folder = new_folder(tmp_path / "book-1")
    assert set(run_inside(pipeline, folder).values()) == {0}
    metrics = published(folder, pipeline.steps[-1].name)["metrics"]
    assert metrics
    printed = run_script(as_script(pipeline), tmp_path / "script").splitlines()
    told = [f"{name}: {str(value).strip(chr(39))}" for name, value in metrics.items()]
    assert printed[-len(told) :] == told


def test_a_distributed_step_runs_on_one_worker(tmp_path: Path) -> None:
    text = as_script(read_book(tmp_path, WORKERS, {}))
    assert "echelon run -n 2" in text
    assert run_script(text, tmp_path / "script") == "more: 2\n"


def test_an_order_that_no_script_has_is_refused(tmp_path: Path) -> None:
    cells = [
        ("step:load", "x, y = [1], [2]"),
        ("step:one prev:load", "x.append(len(y))\nfirst = sum(x)"),
        ("step:two prev:load", "y.append(len(x))\nsecond = sum(y)"),
        ("step:join prev:one prev:two", "both = first + second"),
    ]
    with pytest.raises(InvalidNotebook, match="steps one and two change variables that the other reads"):
        as_script(read_book(tmp_path, cells, {}))


def test_await_at_the_top_is_refused(tmp_path: Path) -> None:
    cells = [("step:a", "import asyncio\nawait asyncio.sleep(0)")]
    with pytest.raises(InvalidNotebook, match="cell 1, line 2: a script cannot do this"):
        as_script(read_book(tmp_path, cells, {}))
