"""The API: what it tells is what the commands tell, and asking changes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.ui.client import HOSTILE, Client, engine_with, training

from echelon.engines.choose import CLUSTER, choose_engine
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.model.engine.sample import Lateness, RankSample, Samples, WorkerSample
from echelon.model.engine.traits import Where
from echelon.model.output.progress import Progress
from echelon.model.run import RunRef
from echelon.ui.reading import progress_data

Serve = Callable[..., Client]


def test_runs_and_one_of_them(serve: Serve, trained: MemoryEngine) -> None:
    client = serve(trained).enter()
    [row] = client.data("/api/runs")
    assert (row["name"], row["state"], row["workers"]) == ("fm", "succeeded", 2)
    run = client.data("/api/runs/fm")
    assert run["status"]["state"] == "succeeded"
    assert [phase["name"] for phase in run["phases"]][-1] == "training"
    assert all(phase["end"] is not None for phase in run["phases"])
    assert "script: fm.py" in run["job"]
    kinds = [event["kind"] for event in client.data("/api/runs/fm/events")]
    assert (kinds[0], kinds[-1]) == ("recorded", "finished")
    assert client.data("/api/about")["place"] == "the memory engine"
    assert client.data("/api/cluster") == {"usage": None, "queue": [], "holding": []}


def test_logs_by_rank_by_text_and_page_by_page(serve: Serve, trained: MemoryEngine) -> None:
    client = serve(trained).enter()
    whole = client.data("/api/runs/fm/logs")
    assert whole["complete"]
    assert len(whole["lines"]) == whole["next"] == 14
    assert HOSTILE in [line[5] for line in whole["lines"]]  # as it was written: pages show it as text
    assert {line[2] for line in client.data("/api/runs/fm/logs?rank=1")["lines"]} == {1}
    [found] = client.data("/api/runs/fm/logs?rank=0&search=nEEDLE")["lines"]
    assert found[5] == "only rank 0: Needle"
    later = client.data(f"/api/runs/fm/logs?after={found[0]}")["lines"]
    assert [line[0] for line in later] == list(range(found[0], 14))
    earlier = client.data(f"/api/runs/fm/logs?before={found[0]}&rank=0")["lines"]
    assert earlier[-1][5] == HOSTILE


def test_the_checkpoint_that_is_kept(serve: Serve) -> None:
    engine = engine_with(lasts=Act(lasts=True))
    with engine._changed:
        (run,) = engine._runs.values()
        engine._tell(run, "checkpoint", path="ckpt/step-4000", size=1288490188, files=4)
        engine._tell(run, "restored", worker=1, path="ckpt/step-4000", generation=1)
    client = serve(engine).enter()
    kept = client.data("/api/runs/lasts")["status"]["checkpoint"]
    assert (kept["path"], kept["size"]) == ("ckpt/step-4000", 1288490188)
    safe, restored = client.data("/api/runs/lasts/events")[-2:]
    assert (safe["kind"], safe["path"], safe["files"]) == ("checkpoint", "ckpt/step-4000", 4)
    assert (restored["kind"], restored["worker"], restored["generation"]) == ("restored", 1, 1)


def test_of_many_metrics_those_that_are_asked_for(serve: Serve) -> None:
    line = " ".join(["step=1", *(f"layer{number}={number}" for number in range(60))])
    client = serve(engine_with(many=Act(lines=(line,)))).enter()

    def names(query: str) -> list[str]:
        return [chart["name"] for chart in client.data(f"/api/runs/many/metrics?{query}")]

    assert len(names("")) == 48
    assert len(names("most=60")) == len(names("most=1000")) == 60
    assert names("search=ER59") == ["layer59"]
    assert names("search=layer5&most=2") == ["layer5", "layer50"]


def test_all_of_the_last_epoch_is_not_all_of_a_run_that_is_over() -> None:
    come = Progress(rank=0, at=1.0, epoch=3, done=1.0, of="epoch", metrics={"loss": 1.4})
    assert progress_data(come, over=False) == {"done": 1.0, "rank": 0, "text": "epoch 3, 100%, loss 1.4"}
    assert progress_data(come, over=True) == {"done": None, "rank": 0, "text": "epoch 3, loss 1.4"}


class Sampling:
    """Rank 1 keeps the others waiting."""

    def newest(self, _ref: RunRef) -> Samples:
        late = Lateness(collectives=300, last=0.97, mean=0.038, waits=0.31)
        ranks = (
            RankSample(rank=1, cpus=1.0, memory=1, late=late),
            RankSample(rank=0, cpus=1.0, memory=1, late=replace(late, last=0.03, mean=0.0, waits=0.0)),
        )
        return Samples(workers=tuple(WorkerSample(worker=each.rank, at=1.0, ranks=(each,)) for each in ranks))

    def follow(self, ref: RunRef, _left: threading.Event) -> Iterator[Samples]:
        yield self.newest(ref)


def test_a_rank_that_keeps_the_others_waiting(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryEngine, "sampling", Sampling())
    engine = engine_with(lasts=Act(lasts=True), ends=Act())
    client = serve(engine).enter()
    (found,) = client.data("/api/runs/lasts/slow")
    assert (found["kind"], found["ranks"]) == ("slow", [1])
    assert found["text"].startswith("rank 1 comes last in 97% of collectives, 38 ms late")
    assert client.data("/api/runs/ends/slow") == []


def test_which_cluster_it_is(serve: Serve, trained: MemoryEngine) -> None:
    trained.where = Where(context="dev", namespace="team-a")
    about = serve(trained).enter().data("/api/about")
    assert (about["context"], about["namespace"]) == ("dev", "team-a")


def test_a_kubeconfig_that_cannot_be_read_leaves_the_pages_to_say_so(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    client = serve(choose_engine(CLUSTER)).enter()
    about = client.data("/api/about")
    assert (about["place"], about["context"], about["namespace"]) == ("the cluster", "", "")
    status, _, said = client.get("/api/runs")
    assert (status, b"no kubeconfig" in said) == (409, True)


def test_curves_and_the_cause_of_a_failure(serve: Serve) -> None:
    failing = Act(lines=("step=1 loss=0.5", "step=2 loss=0.25"), error="ValueError: bad", exit_code=3)
    client = serve(engine_with(bad=failing)).enter()
    [chart] = client.data("/api/runs/bad/metrics")
    assert (chart["name"], chart["axis"], chart["ranks"]) == ("loss", "step", [0, 1])
    assert chart["curves"] == [{"label": "rank 0", "x": [1.0, 2.0], "y": [0.5, 0.25]}]
    assert client.data("/api/runs/bad/metrics?rank=7") == []
    assert "ValueError: bad" in client.data("/api/runs/bad")["status"]["root_cause"]["summary"]


def test_values_that_cannot_be_drawn(serve: Serve) -> None:
    act = Act(lines=("step=1 loss=2 size=1 rate=1", "step=2 loss=nan size=inf rate=-inf"))
    client = serve(engine_with(fm=act)).enter()
    charts = {chart["name"]: chart for chart in client.data("/api/runs/fm/metrics")}
    assert {name: chart["last"] for name, chart in charts.items()} == {
        "loss": "nan",
        "size": "inf",
        "rate": "-inf",
    }
    assert charts["loss"]["curves"] == [{"label": "rank 0", "x": [1.0], "y": [2.0]}]


def test_results_are_listed_and_downloaded(serve: Serve, results: Path) -> None:
    client = serve(engine_with(results, fm=Act())).enter()
    listed = client.data("/api/runs/fm/results")
    assert [file["path"] for file in listed["files"]] == ["ckpt/model.pt"]  # no link
    status, headers, content = client.get("/api/runs/fm/results/ckpt/model.pt")
    assert (status, content) == (200, b"weights")
    assert headers["content-disposition"].startswith("attachment")
    assert "sandbox" in headers["content-security-policy"]


def test_stop_and_remove(serve: Serve) -> None:
    client = serve(engine_with(fm=Act(lasts=True))).enter()
    assert client.data("/api/runs")[0]["state"] == "running"
    status, _, content = client.post("/api/runs/fm/remove")
    assert status == 409  # it goes on
    assert "error" in json.loads(content)
    assert client.post("/api/runs/fm/stop")[0] == 200
    wait_until(lambda: client.data("/api/runs")[0]["state"] == "stopped", "the run to stop")
    assert client.post("/api/runs/fm/remove")[0] == 200
    assert client.data("/api/runs") == []
    assert client.get("/api/runs/fm")[0] == 404


def test_read_only_refuses_what_changes(serve: Serve) -> None:
    client = serve(engine_with(fm=Act(lasts=True)), read_only=True).enter()
    assert client.data("/api/about")["read_only"]
    for verb in ("stop", "remove"):
        assert client.post(f"/api/runs/fm/{verb}")[0] == 403
    assert client.data("/api/runs")[0]["state"] == "running"


def test_asking_changes_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(fm=training)
    changing = ("record", "reopen", "queue", "start", "stop", "remove", "collect", "fetch", "tender")

    def refuse(*_words: object, **_more: object) -> None:
        raise AssertionError("a page that is open changes something")

    for name in changing:
        monkeypatch.setattr(engine, name, refuse)
    client = serve(engine).enter()
    for path in ("", "/logs", "/metrics", "/events", "/results"):
        client.data(f"/api/runs/fm{path}")


@pytest.mark.parametrize(
    "path", ["/api/runs/fm/logs?rank=x", "/api/runs/fm/logs?after=-1", "/api/runs/fm/metrics?rank=1e3"]
)
def test_what_is_no_number_is_refused(serve: Serve, trained: MemoryEngine, path: str) -> None:
    assert serve(trained).enter().get(path)[0] == 400
