"""The addresses that the panel calls, in a real Jupyter server."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.lab.served import Served, jupyter
from tests.lab.test_analysis import document_of
from tests.notebook.books import write_book

from echelon.lab.requests import within

BOOK = [
    ("pipeline-parameters", "factor = 2"),
    ("step:load", "data = [1, 2, 3]\nprint('loaded', len(data))"),
    ("step:train prev:load", "total = sum(data) * factor\nassert total < 100, 'too large'"),
    ("pipeline-metrics", "total"),
]


def test_only_notebooks_below_the_root_are_reached(tmp_path: Path) -> None:
    assert within(tmp_path, "a/b.ipynb") == tmp_path / "a" / "b.ipynb"
    assert within(tmp_path, "/b.ipynb") == tmp_path / "b.ipynb"
    for path in ("../b.ipynb", "a/../../b.ipynb", "b.py", "", "..", "a\0.ipynb", "//../b.ipynb"):
        assert within(tmp_path, path) is None


def run_of(served: Served, name: str) -> dict[str, Any]:
    """How a run stands once it is over."""
    found: dict[str, Any] = {}

    def is_over() -> bool:
        status, answer = served.ask("state", {"path": "sub/book.ipynb", "name": name})
        assert status == 200, answer
        found.update(answer["run"])
        return bool(found["over"])

    wait_until(is_over, f"the end of {name}")
    return found


@pytest.mark.slow
def test_a_notebook_is_looked_at_tagged_run_and_continued(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("jupyter_server")
    folder = Path.cwd() / "sub"
    folder.mkdir()
    path = write_book(folder / "book.ipynb", BOOK)
    with jupyter(Path.cwd(), tmp_path / "jupyter") as served:
        # Who may ask: as everywhere in Jupyter.
        asked = {"path": "sub/book.ipynb", "document": document_of(BOOK)}
        assert served.ask("analyse", asked, token="wrong")[0] == 403
        cookie = {"Cookie": served.cookies()}
        # As from a form on a page of another site, then from the panel.
        assert served.ask("analyse", asked, token="", headers=cookie)[0] == 403
        known = dict(each.split("=", 1) for each in cookie["Cookie"].split("; "))
        cookie["X-XSRFToken"] = known["_xsrf"]
        assert served.ask("analyse", asked, token="", headers=cookie)[0] == 200
        cookie["Origin"] = "http://elsewhere.example"
        assert served.ask("analyse", asked, token="", headers=cookie)[0] == 404
        assert served.ask("analyse", b"{")[0] == 400
        assert served.ask("run", {"path": "../book.ipynb"})[0] == 404

        status, found = served.ask("analyse", asked)
        assert (status, found["problems"]) == (200, [])
        assert [step["name"] for step in found["steps"]] == ["load", "train"]
        assert found["name"] == "book"
        asked = {"path": "sub/book.ipynb", "kind": "python"}
        assert served.ask("compile", asked) == (200, {"files": ["compiled/book.py"], "notes": []})
        assert "# step train" in (folder / "compiled" / "book.py").read_text()
        assert served.ask("compile", {**asked, "path": "../book.ipynb"})[0] == 404
        assert served.ask("compile", {**asked, "kind": "tekton"})[1]["text"].endswith("it has no image")
        choice = {"steps": ["train"], "after": ["load"], "gpus": 1}
        status, found = served.ask("tags", {"cell": 4, "tags": {"4": ["mine"]}, "choice": choice})
        assert found == {"tags": {"4": ["step:train", "prev:load", "limit:nvidia.com/gpu:1", "mine"]}}
        tags = {"2": ["step:load"], "4": ["step:train", "prev:load"]}
        status, found = served.ask("tags", {"cell": 2, "tags": tags, "choice": {"steps": ["fetch"]}})
        assert found == {"tags": {"2": ["step:fetch"], "4": ["step:train", "prev:fetch"]}}
        status, found = served.ask("tags", {"cell": 4, "tags": {}, "choice": {"steps": ["No"]}})
        assert (status, found["cell"], found["hint"]) == (422, 4, "small letters, digits and _, such as no")

        assert served.ask("state", {"path": "sub/book.ipynb"}) == (200, {"run": None})
        status, found = served.ask("run", {"path": "sub/book.ipynb", "parameters": {"factor": "x"}})
        assert status == 422
        assert "--param factor" in found["text"]
        status, found = served.ask("run", {"path": "sub/book.ipynb", "parameters": {"factor": "50"}})
        assert (status, found) == (200, {"name": "book-1"})
        run = run_of(served, "book-1")
        load, train = run["steps"]
        assert run["results"] == "runs/book-1"
        assert (load["state"], train["state"], train["cell"], train["line"]) == ("succeeded", "failed", 3, 2)
        assert "AssertionError: too large" in train["traceback"]
        assert train["cell_id"] == "cell-2"  # wherever it is in the editor by now
        status, found = served.ask("output", {"path": "sub/book.ipynb", "name": "book-1", "step": "load"})
        assert found == {"lines": ["loaded 3"]}
        assert served.ask("state", {"path": "other.ipynb", "name": "book-1"})[0] == 422

        write_book(path, [*BOOK[:2], ("step:train prev:load", "total = len(data)"), BOOK[3]])
        assert served.ask("run", {"path": "sub/book.ipynb", "start": "train"}) == (200, {"name": "book-1"})
        run = run_of(served, "book-1")
        assert [step["state"] for step in run["steps"]] == ["kept", "succeeded"]
        assert run["metrics"] == {"total": 3}
        assert served.ask("state", {"path": "sub/book.ipynb"})[1]["run"]["name"] == "book-1"
        asked = {"path": "sub/book.ipynb", "name": "book-1"}
        address = served.ask("dashboard", asked)[1]["address"]
        assert served.ask("dashboard", asked)[1] == {"address": address}
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            assert b"echelon" in answer.read()


@pytest.mark.slow
def test_a_run_is_stopped_and_outlives_the_server(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("jupyter_server")
    write_book(
        Path("long.ipynb"), [("step:wait", "print('begun', flush=True)\nimport time\ntime.sleep(600)")]
    )
    with jupyter(Path.cwd(), tmp_path / "first") as served:
        assert served.ask("run", {"path": "long.ipynb"}) == (200, {"name": "long-1"})
    with jupyter(Path.cwd(), tmp_path / "second") as served:
        asked = {"path": "long.ipynb", "name": "long-1", "step": "wait"}
        assert served.ask("run", {"path": "long.ipynb", "start": "wait"})[0] == 422
        wait_until(lambda: served.ask("output", asked)[1] == {"lines": ["begun"]}, "the step to begin")
        assert not served.ask("state", asked)[1]["run"]["over"]
        assert served.ask("stop", asked) == (200, {"note": None})
        wait_until(lambda: served.ask("state", asked)[1]["run"]["over"], "the end of the run")
        assert served.ask("state", asked)[1]["run"]["steps"][0]["state"] == "stopped"
