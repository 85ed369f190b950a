"""Runs that are made of runs on the dashboard: one row and one page each, with the graph and the steps as
they go, wherever these run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.conftest import PATIENCE
from tests.parents import IN_CLUSTER, NOTEBOOK, end, kill, parent, step_run
from tests.ui.client import Client
from tests.ui.played import LOAD, TRAIN, Played, PlayedCluster
from tests.ui.test_live import Page

from echelon.engines.local.engine import LocalEngine
from echelon.engines.memory.engine import MemoryEngine
from echelon.model.program import Step
from echelon.model.state import State
from echelon.model.status import RunSummary
from echelon.ui.feed import Polled
from echelon.ui.reading import Reading

Serve = Callable[..., Client]


def test_it_is_one_row_and_its_page_has_the_graph(serve: Serve) -> None:
    engine = Played()
    engine.add_steps("book-1", "load")
    engine.add_parent("book-1", LOAD, TRAIN)
    engine.add("book-1-alone")
    client = serve(engine).enter()
    rows = {row["name"]: row for row in client.data("/api/runs")}
    assert set(rows) == {"book-1", "book-1-load", "book-1-alone"}
    assert (rows["book-1"]["state"], rows["book-1"]["steps"], rows["book-1"]["steps_done"]) == (
        "running",
        2,
        1,
    )
    found = client.data("/api/runs/book-1")
    load, train = found["status"]["steps"]
    assert (load["state"], train["state"]) == ("succeeded", "waiting")
    assert (train["after"], train["gets"]) == (["load"], {"load": ["x"]})
    assert found["links"] == {"load": "book-1-load"}  # what has no run leads nowhere
    assert client.data("/api/runs/book-1-load")["parent"] == "book-1"
    status, headers, content = client.get("/api/runs/book-1/graph")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "image/svg+xml")
    drawn = ET.fromstring(content)
    assert [link.attrib["href"] for link in drawn.findall(".//{*}a")] == ["#/run/book-1-load"]
    assert "✓ succeeded" in [each.text for each in drawn.iter()]
    for path in ("book-1-load", "book-1-alone", "other", "..", "%2e%2e%2fbook-1", "%00"):
        assert client.get(f"/api/runs/{path}/graph")[0] == 404


def test_a_page_is_told_of_its_steps_as_they_go(serve: Serve) -> None:
    engine = Played()
    engine.add_steps("book-1", "load")
    engine.add_parent("book-1", LOAD, TRAIN)
    client = serve(engine).enter()

    def states(messages: object) -> list[str]:
        found = next(each["run"] for each in messages if each["kind"] == "run")  # type: ignore[attr-defined]
        return [step["state"] for step in found["status"]["steps"]]

    with closing(Page(client, "page=run&name=book-1")) as page:
        messages = page.messages()
        assert states(messages) == ["succeeded", "waiting"]
        engine.tell("book-1", Step(name="train", state="running", run="memory://book-1-train"))
        assert states(messages) == ["succeeded", "running"]
    with closing(Page(client, "page=runs")) as page:
        [row] = next(page.messages())["runs"]
        assert (row["name"], [step["name"] for step in row["below"]]) == ("book-1", ["book-1-load"])
    with closing(Page(client, "page=run&name=none")) as page:
        assert next(page.messages())["kind"] == "trouble"


def test_of_one_that_another_machine_has_started_the_steps_are_shown(serve: Serve) -> None:
    engine = Played()
    engine.add_steps("book-1", "load", "train")
    client = serve(engine).enter()
    with closing(Page(client, "page=runs")) as page:
        [row] = next(page.messages())["runs"]
    assert (row["name"], row["state"], row["steps"], len(row["below"])) == ("book-1", "running", 2, 2)
    with closing(Page(client, "page=run&name=book-1")) as page:
        found = next(page.messages())["run"]
    assert {**found, "now": 0} == {**client.data("/api/runs/book-1"), "now": 0}
    assert [(step["name"], step["state"]) for step in found["status"]["steps"]] == [
        ("load", "succeeded"),
        ("train", "running"),
    ]
    assert (found["status"]["state"], found["status"]["uri"]) == ("running", "")
    drawn = client.get("/api/runs/book-1/graph")[2]
    assert drawn.count(b'<a href="#/run/book-1-') == 2
    status, _, said = client.post("/api/runs/book-1/stop")  # nothing here can stop it
    assert status == 404
    assert "book-1-train, book-1-load" in json.loads(said)["hint"]


def test_lines_and_curves_of_the_whole_are_those_of_its_steps(serve: Serve, home: Path) -> None:
    ran = [step_run(name, "echo", f"loss=0.{at} step=1") for at, name in enumerate(("load", "train"), 1)]
    for run in ran:
        run.wait(PATIENCE, show=False)
    steps = [Step(name=name, state="succeeded", run=str(run)) for name, run in zip("ab", ran, strict=True)]
    end(parent(*steps))
    client = serve(LocalEngine()).enter()
    lines = client.data("/api/runs/t-1/logs")["lines"]
    assert [(line[-1], line[-2]) for line in lines] == [("a", "loss=0.1 step=1"), ("b", "loss=0.2 step=1")]
    [chart] = client.data("/api/runs/t-1/metrics")
    assert [(curve["label"], curve["y"]) for curve in chart["curves"]] == [("a", [0.1]), ("b", [0.2])]
    assert (
        client.data("/api/runs/t-1")["status"]["progress"] is None
    )  # of which step it would be, nobody knows


def test_one_whose_steps_are_in_a_cluster_is_there_and_is_stopped_here(serve: Serve, home: Path) -> None:
    engine = PlayedCluster()
    engine.add_steps("t-1", "load")
    load = replace(LOAD, run="memory://t-1-load")
    run, other = parent(load, TRAIN, program=IN_CLUSTER), parent(name="here-1")
    client = serve(engine).enter()
    assert {row["name"] for row in client.data("/api/runs")} == {"t-1", "t-1-load"}
    found = client.data("/api/runs/t-1")
    assert (found["status"]["state"], found["links"]) == ("running", {"load": "t-1-load"})
    # On this machine's dashboard its steps have no page.
    found = serve(LocalEngine()).enter().data("/api/runs/t-1")
    assert (len(found["status"]["steps"]), found["links"]) == (2, {})
    assert client.post("/api/runs/t-1/stop")[0] == 200
    assert run.wait(PATIENCE, show=False).state == "stopped"
    assert other.status().state == "running"


def test_steps_that_outlive_their_executor_are_stopped_with_their_parent(serve: Serve, home: Path) -> None:
    left = step_run("train", "sleep", "600")
    run = parent(Step(name="train", state="running", run=str(left)))
    kill(run)
    client = serve(LocalEngine()).enter()
    assert client.data("/api/runs/t-1")["status"]["state"] == "lost"
    assert left.status().state == "running"
    assert client.post("/api/runs/t-1/stop")[0] == 200
    assert left.wait(PATIENCE, show=False).state == "stopped"
    assert client.post("/api/runs/t-1/remove")[0] == 200
    assert client.data("/api/runs") == []  # its steps with it


def test_what_is_private_to_the_executor_is_no_result(serve: Serve, home: Path) -> None:
    run = parent(LOAD, program=replace(NOTEBOOK, private=("secret", "values")))
    folder = Path(str(run.status().results))
    for path in ("secret", "values/load/x.json", "work/values/kept.txt", "notebook.ipynb"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("-")
    (folder / "work" / "link").symlink_to(folder / "secret")
    (folder / "work" / "folder").symlink_to(folder / "values")
    client = serve(LocalEngine()).enter()
    found = client.data("/api/runs/t-1/results")["files"]
    assert {"notebook.ipynb", "work/values/kept.txt"} <= {file["path"] for file in found}
    assert not [file for file in found if file["path"].startswith(("secret", "values"))]
    others = ("work/../secret", "work%2f..%2fsecret", "work/link", "work/folder/load/x.json")
    for path in ("secret", "values/load/x.json", "./secret", *others):
        assert client.get(f"/api/runs/t-1/results/{path}")[0] != 200
    assert client.get("/api/runs/t-1/results/work/values/kept.txt")[0] == 200


def test_looking_leaves_everything_as_it_is(serve: Serve, home: Path) -> None:
    end(parent(LOAD, TRAIN))
    client = serve(LocalEngine()).enter()

    def stamps() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (home / "runs").rglob("*")}

    before = stamps()
    for path in ("", "/t-1", "/t-1/graph", "/t-1/events", "/t-1/logs"):
        client.get(f"/api/runs{path}")
    assert stamps() == before


def test_of_many_steps_the_list_has_those_that_go_on_and_a_page_leads_to_those_that_were_kept() -> None:
    def row(number: int) -> RunSummary:
        state: State = "running" if number == 300 else "succeeded"
        name = f"tune-{number}"
        return RunSummary(name=name, uri=f"local://{name}", state=state, created=float(number), parent="tune")

    sweep = RunSummary(name="tune", uri="local://tune", state="running", created=0.0, steps=300)
    rows = [sweep, *map(row, range(1, 301))]
    reading = Reading(MemoryEngine())
    reading.rows = Polled(lambda: rows, every=1e9)
    (found,) = reading.nested()
    assert [step["name"] for step in found["below"]] == [f"tune-{n}" for n in (*range(1, 100), 300)]
    assert found["more"] == 200
    steps = [Step(name="1", state="kept"), Step(name="2", run="local://tune-2"), Step(name="301")]
    assert reading.links("tune", steps) == {"1": "tune-1", "2": "tune-2"}
