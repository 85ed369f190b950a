"""A notebook that is tagged and run by buttons, in a real JupyterLab in a real browser."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import PATIENCE
from tests.lab.served import TOKEN, jupyter
from tests.notebook.books import write_book
from tests.parents import NOTEBOOK, end, parent
from tests.ui.chromium import the_chromium

from echelon.model.program import Step
from echelon.notebook.kept.folder import PipelineFolder, PipelineRecord, StepRecord, write_record

ROOT = Path(__file__).parents[2]
BOOK = [
    ("", "factor = 2"),
    ("", "data = [1, 2, 3]"),
    ("", "total = sum(data) * factor\nprint('total', total)"),
]
WRONG = [
    ("pipeline-parameters", "factor = 2"),
    ("step:load", "print(nowhere)\ndata = [1, 2, 3]"),
    ("step:train prev:load", "print(neither)\ntotal = sum(data) * factor"),
    ("step:look prev:train", "print(total)"),
]
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
# Nobody listens there.
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
    "contexts": [{"name": "nowhere", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "nowhere",
}


def told_by_visitor(name: str, scratch: Path, *more: str, theme: str = "JupyterLab Light") -> list[str]:
    """What a visit to `book.ipynb` says that it has done; it fails with all that the visitor said."""
    chromium = the_chromium()
    if importlib.util.find_spec("jupyterlab") is None:
        pytest.skip("needs JupyterLab: uv pip install --group browser")
    shots = Path(os.environ.get("ECHELON_SCREENSHOTS") or scratch / "screenshots")
    shots.mkdir(parents=True, exist_ok=True)
    with jupyter(Path.cwd(), scratch / "jupyter", "jupyterlab", *more, theme=theme) as served:
        address = f"{served.origin}/lab/tree/book.ipynb?token={TOKEN}"
        visitor = subprocess.run(
            [sys.executable, "-m", "tests.lab.visit", name, chromium, address, str(shots)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
            timeout=10 * PATIENCE,
            check=False,
        )
    assert visitor.returncode == 0, f"{visitor.stdout}\n{visitor.stderr}"
    return visitor.stdout.splitlines()


@pytest.mark.slow
def test_cells_are_tagged_and_run_by_buttons(home: Path, tmp_path: Path) -> None:
    write_book(Path("book.ipynb"), BOOK, KERNEL)
    assert told_by_visitor("plain", tmp_path) == ["opened", "tagged", "run", "continued"]
    assert "step:train" in Path("book.ipynb").read_text()


@pytest.mark.slow
def test_the_dark_theme_the_keyboard_and_a_cluster_that_does_not_answer(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = write_book(Path("book.ipynb"), WRONG, KERNEL)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(KUBECONFIG))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    train = Step(
        name="train", state="failed", run="local://book-1-train", exit_code=1, cell=3, line=1,
        reason="ValueError: no luck", hint="try again",
    )  # fmt: skip
    steps = (
        Step(name="load", state="succeeded", run="local://book-1-load"),
        train,
        Step(name="look", state="not-reached", reason="step train failed"),
    )
    run = parent(*steps, name="book-1", program=replace(NOTEBOOK, source=str(book.absolute())))
    traceback = "Traceback (most recent call last):\n  cell 3, line 1\nValueError: no luck"
    record = PipelineRecord(
        name="book-1", notebook=str(book), created=1.0, steps={"train": StepRecord(traceback=traceback)}
    )
    write_record(PipelineFolder(Path("runs", "book-1")), record)
    end(run, 1)
    told = told_by_visitor("looks", tmp_path, theme="JupyterLab Dark")
    assert told == ["readable", "by keyboard", "refused"]
    assert sorted(each.name for each in Path("runs").glob("[!.]*")) == ["book-1"]  # nothing was begun


@pytest.mark.slow
def test_all_is_seen_in_a_narrow_panel_and_the_pipeline_is_named_and_compiled(
    home: Path, tmp_path: Path
) -> None:
    branches = [
        ("step:by_hand prev:load_digits", "hand = [*digits]"),
        ("step:by_network prev:load_digits distribute:torch workers:2", "network = [*digits]"),
        ("step:by_chance prev:load_digits", "chance = [*digits]"),
    ]
    cells = [
        ("step:load_digits", "digits = [1, 2, 3]"),
        *branches,
        ("step:compare prev:by_hand prev:by_network prev:by_chance", "best = max(hand + network + chance)"),
        ("step:report prev:compare", "print(best)"),
    ]
    write_book(Path("book.ipynb"), cells, KERNEL)
    assert told_by_visitor("whole", tmp_path) == ["seen", "compiled"]
    about = json.loads(Path("book.ipynb").read_text())["metadata"]["kubeflow_notebook"]
    assert about == {"pipeline_name": "Digits, again", "pipeline_description": "what it does"}
    compile(Path("compiled/digits-again.py").read_text(), "digits-again.py", "exec")
    assert "what it does" in Path("compiled/digits-again-run.yaml").read_text()


@pytest.mark.slow
def test_a_notebook_of_200_cells(home: Path, tmp_path: Path) -> None:
    cells = []
    for number in range(40):
        before = f"x{number - 1} + 1" if number else "0"
        cells.append((f"step:s{number}" + f" prev:s{number - 1}" * bool(number), f"x{number} = {before}"))
        cells += [("", f"y{number} = x{number}\nprint(y{number})")] * 4
    write_book(Path("book.ipynb"), cells, KERNEL)
    assert told_by_visitor("large", tmp_path, "--LabApp.expose_app_in_browser=True") == ["drawn", "quiet"]
