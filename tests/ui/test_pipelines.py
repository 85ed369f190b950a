"""Pipelines of notebooks on the dashboard: listed, and each with its graph and its steps as they go."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.notebook.books import new_folder
from tests.ui.client import Client
from tests.ui.test_live import Page

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.model.job import PIPELINE, Job
from echelon.notebook.kept.folder import PipelineFolder, PipelineRecord, StepRecord, held, write_record
from echelon.notebook.kept.noted import note_pipeline
from echelon.notebook.picture.graph import Node
from echelon.preparation.prepare import Prepared
from echelon.submit import submit

Serve = Callable[..., Client]
GRAPH = (
    Node(name="load"),
    Node(name="train", after=("load",), gets={"load": ("x",)}, size="2 workers, torch"),
)


@pytest.fixture
def pipeline(home: Path, tmp_path: Path) -> PipelineFolder:
    """A pipeline run whose first step is over, and whose second is about to run."""
    folder = new_folder(tmp_path / "book-1")
    steps = {
        "load": StepRecord(state="succeeded", run="book-1-load", submitted=True, started=1.0, ended=3.0),
        "train": StepRecord(),
    }
    write_record(
        folder,
        PipelineRecord(name="book-1", notebook="/home/ann/book.ipynb", created=1.0, steps=steps, graph=GRAPH),
    )
    note_pipeline(folder)
    return folder


def engine_with_steps(*steps: str) -> MemoryEngine:
    engine = MemoryEngine({"load.py": Act(), "train.py": Act(lasts=True), "alone.py": Act()})
    for step in steps:
        env = {PIPELINE: "book-1"} if step != "alone" else {}
        job = Job(name=f"book-1-{step}", script=f"{step}.py", framework="plain", env=env)
        submit(Prepared(job=job), engine, stays=False)
    return engine


def test_it_is_listed_and_its_page_has_the_graph(serve: Serve, pipeline: PipelineFolder) -> None:
    client = serve(engine_with_steps("load", "alone")).enter()
    with held(pipeline):
        [row] = client.data("/api/pipelines")
        assert (row["name"], row["state"], row["done"], row["steps"]) == ("book-1", "running", 1, 2)
        found = client.data("/api/pipelines/book-1")
    load, train = found["steps"]
    assert (load["state"], load["run"], train["state"], train["run"]) == (
        "succeeded",
        "book-1-load",
        "waiting",
        None,
    )
    assert (train["after"], train["gets"]) == (["load"], {"load": ["x"]})
    status, headers, content = client.get("/api/pipelines/book-1/graph")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "image/svg+xml")
    drawn = ET.fromstring(content)
    assert [link.attrib["href"] for link in drawn.findall(".//{*}a")] == ["#/run/book-1-load"]
    assert "✓ succeeded" in [each.text for each in drawn.iter()]
    assert client.data("/api/runs/book-1-load")["pipeline"] == "book-1"
    for name in ("other", "..", "%2e%2e%2fbook-1", "%00", "book-1.json"):
        for path in ("", "/graph"):
            assert client.get(f"/api/pipelines/{name}{path}")[0] == 404


def test_a_page_is_told_of_its_steps_as_they_go(serve: Serve, pipeline: PipelineFolder) -> None:
    engine = engine_with_steps("load")
    client = serve(engine).enter()
    with ExitStack() as stack:
        stack.enter_context(held(pipeline))
        page = Page(client, "page=pipeline&name=book-1")
        stack.callback(page.close)
        messages = page.messages()
        first = next(messages)["pipeline"]
        assert [step["state"] for step in first["steps"]] == ["succeeded", "waiting"]
        record = PipelineRecord(
            name="book-1",
            notebook="",
            created=1.0,
            steps={
                "load": StepRecord(state="succeeded"),
                "train": StepRecord(state="running", run="book-1-train"),
            },
            graph=GRAPH,
        )
        write_record(pipeline, record)
        later = next(messages)["pipeline"]
        assert [step["state"] for step in later["steps"]] == ["succeeded", "running"]
    runs = Page(client, "page=runs")
    assert [each["name"] for each in next(runs.messages())["pipelines"]] == ["book-1"]
    runs.close()
    page = Page(client, "page=pipeline&name=none")
    assert next(page.messages())["kind"] == "trouble"
    page.close()


def test_looking_leaves_the_folder_as_it_is(serve: Serve, pipeline: PipelineFolder) -> None:
    client = serve(engine_with_steps("load")).enter()
    before = {path: path.stat().st_mtime_ns for path in pipeline.path.rglob("*")}
    client.data("/api/pipelines")
    client.data("/api/pipelines/book-1")
    assert {path: path.stat().st_mtime_ns for path in pipeline.path.rglob("*")} == before
