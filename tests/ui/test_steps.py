"""Runs that are made of runs on the dashboard: one row and one page each, with the graph and the steps as
they go, wherever these run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.parents import Played, at_work
from tests.ui.client import Client
from tests.ui.test_live import Page

from echelon.engines.local.engine import LocalEngine
from echelon.model.engine.traits import Traits
from echelon.model.program import Step

Serve = Callable[..., Client]
LOAD = Step(name="load", state="succeeded", run="memory://book-1-load", started=1.0, ended=3.0)
TRAIN = Step(name="train", after=("load",), gets={"load": ("x",)}, size="2 workers, torch")


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


class InACluster(Played):
    """Steps that run in a cluster; their parents are here."""

    traits = Traits(place="the cluster", remote=True)


def test_one_whose_steps_are_in_a_cluster_is_there_and_is_stopped_here(serve: Serve, home: Path) -> None:
    engine = InACluster()
    engine.add_steps("book-1", "load")
    with at_work("book-1", LOAD, TRAIN, place="the cluster") as there, at_work("local-1", LOAD):
        client = serve(engine).enter()
        assert {row["name"] for row in client.data("/api/runs")} == {"book-1", "book-1-load"}
        found = client.data("/api/runs/book-1")
        assert (found["status"]["state"], found["links"]) == ("running", {"load": "book-1-load"})
        assert client.post("/api/runs/book-1/stop")[0] == 200
        assert there.folder.stop.exists()
        # On this machine's dashboard its steps have no page.
        found = serve(LocalEngine()).enter().data("/api/runs/book-1")
        assert (len(found["status"]["steps"]), found["links"]) == (2, {})


def test_what_is_private_to_the_executor_is_no_result(serve: Serve, home: Path) -> None:
    with at_work("book-1", LOAD, notebook=Path.cwd() / "book.ipynb") as there:
        folder = Path(there.record.results)
        for path in ("secret", "values/load/x.json", "work/values/kept.txt", "notebook.ipynb"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("-")
        client = serve(LocalEngine()).enter()
        found = client.data("/api/runs/book-1/results")
        assert [file["path"] for file in found["files"]] == ["notebook.ipynb", "work/values/kept.txt"]
        for path in ("secret", "values/load/x.json", "./secret", "work/../secret", "work%2f..%2fsecret"):
            assert client.get(f"/api/runs/book-1/results/{path}")[0] != 200
        assert client.get("/api/runs/book-1/results/work/values/kept.txt")[0] == 200


def test_looking_leaves_everything_as_it_is(serve: Serve, home: Path) -> None:
    with at_work("book-1", LOAD, TRAIN) as there:
        client = serve(LocalEngine()).enter()

        def stamps() -> dict[Path, int]:
            return {path: path.stat().st_mtime_ns for path in there.folder.path.rglob("*")}

        before = stamps()
        for path in ("", "/book-1", "/book-1/graph", "/book-1/events", "/book-1/logs"):
            client.get(f"/api/runs{path}")
        assert stamps() == before
