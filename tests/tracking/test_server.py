"""A real MLflow server: what the command that follows a run sends, outages, and what is sent later."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.mlflow import NoMLflow, Server, folder
from tests.conftest import wait_until

import echelon

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Cli = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = """
    import os, pathlib, sys, time
    rank = int(os.environ["ECHELON_RANK"])
    start = int(os.environ["ECHELON_RESTART"])
    here = pathlib.Path(os.environ["ECHELON_OUTPUT"])
    for step in range(start * 10, start * 10 + 10):
        print(f"step={step} loss={step + rank}", flush=True)
        if step == 4 and rank == 0 and "--wait" in sys.argv:
            (here / "halfway").touch()
            while not (here / "go").exists():
                time.sleep(0.05)
    if "--fail" in sys.argv and start == 0:
        sys.exit(3)
"""


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        folder()
    except NoMLflow as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    server = Server(tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def train(mlflow: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow.url)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", f"experiment of {home.parent.name}")
    script = Path("train.py")
    script.write_text("\n".join(line.removeprefix("    ") for line in TRAIN.splitlines()))
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)
    return script


def ask(server: Server, path: str, content: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{server.url}/api/2.0/mlflow/{path}",
        data=json.dumps(content).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def runs(server: Server) -> list[dict[str, Any]]:
    name = os.environ["MLFLOW_EXPERIMENT_NAME"]
    known = ask(server, "experiments/search", {"max_results": 1000})["experiments"]
    ids = [each["experiment_id"] for each in known if each["name"] == name]
    return ask(server, "runs/search", {"experiment_ids": ids}).get("runs", []) if ids else []


def history(server: Server, run: dict[str, Any], name: str) -> list[tuple[int, float]]:
    query = f"run_id={run['info']['run_id']}&metric_key={urllib.parse.quote(name)}"
    with urllib.request.urlopen(f"{server.url}/api/2.0/mlflow/metrics/get-history?{query}") as response:
        found = json.load(response)["metrics"]
    return sorted((int(each.get("step", 0)), each["value"]) for each in found)


def values(run: dict[str, Any], kind: str) -> dict[str, str]:
    return {each["key"]: each["value"] for each in run["data"][kind]}


def test_a_run_with_its_metrics_parameters_and_commit(mlflow: Server, train: Path, cli: Cli) -> None:
    words = ["--name", "fm", "-n", "2", "--track", "mlflow"]
    done = cli("run", *words, "train.py", "--lr", "1e-3", "--password", "hunter2")
    assert done.returncode == 0, done.stderr
    (run,) = runs(mlflow)
    assert (run["info"]["run_name"], run["info"]["status"]) == ("fm", "FINISHED")
    assert (
        f"{mlflow.url}/#/experiments/{run['info']['experiment_id']}/runs/{run['info']['run_id']}"
        in done.stderr
    )
    assert history(mlflow, run, "loss") == [(step, step) for step in range(10)]
    assert history(mlflow, run, "rank 1/loss") == [(step, step + 1) for step in range(10)]
    parameters, tags = values(run, "params"), values(run, "tags")
    assert (parameters["lr"], parameters["echelon.workers"]) == ("1e-3", "2")
    assert "hunter2" not in json.dumps(run)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert tags["mlflow.source.git.commit"] == head.stdout.strip()
    assert (tags["mlflow.source.name"], tags["echelon.results"]) == (
        "train.py",
        f"{socket.gethostname()}:{Path('runs/fm').absolute()}",
    )
    # Sent again, nothing comes twice; a detached run is sent by the command that waits for it.
    assert cli("metrics", "fm", "--track", "mlflow").returncode == 0
    assert len(history(mlflow, runs(mlflow)[0], "loss")) == 10
    assert cli("run", "-d", "--name", "later", "--track", "mlflow", "train.py").returncode == 0
    assert cli("wait", "later").returncode == 0
    assert {each["info"]["run_name"] for each in runs(mlflow)} == {"fm", "later"}


def test_a_run_that_is_resumed_goes_on_as_the_same(mlflow: Server, train: Path, cli: Cli) -> None:
    assert cli("run", "--name", "fm", "--track", "mlflow", "train.py", "--fail").returncode == 3
    (run,) = runs(mlflow)
    assert run["info"]["status"] == "FAILED"
    done = cli("resume", "fm")
    assert done.returncode == 0, done.stderr
    (run,) = runs(mlflow)
    assert run["info"]["status"] == "FINISHED"
    assert history(mlflow, run, "loss") == [(step, step) for step in range(20)]


def test_an_outage_loses_nothing_and_stops_nothing(
    mlflow: Server, train: Path, cli: Cli, tmp_path: Path
) -> None:
    words = ["run", "--name", "fm", "--track", "mlflow", "train.py", "--wait"]
    with (tmp_path / "err").open("wb") as err:
        follows = subprocess.Popen(
            [sys.executable, "-m", "echelon.cli.main", *words], stdout=subprocess.DEVNULL, stderr=err
        )
        try:
            wait_until(lambda: runs(mlflow) and history(mlflow, runs(mlflow)[0], "loss"), "the first metrics")
            mlflow.stop()
            Path("runs/fm/go").touch()
            wait_until(lambda: echelon.attach("fm").status().state == "succeeded", "the run's end")
            assert follows.wait(300) == 0
        finally:
            follows.kill()
            follows.wait()
    told = (tmp_path / "err").read_text()
    assert "not all metrics were sent" in told
    assert "`echelon metrics fm --track mlflow` sends them later" in told
    refused = cli("metrics", "fm", "--track", "mlflow")
    assert refused.returncode == 119
    mlflow.start()
    (run,) = runs(mlflow)
    assert run["info"]["status"] == "RUNNING"
    done = cli("metrics", "fm", "--track", "mlflow", patience=120)
    assert done.returncode == 0, done.stderr
    (run,) = runs(mlflow)
    assert run["info"]["status"] == "FINISHED"
    assert history(mlflow, run, "loss") == [(step, step) for step in range(10)]


def test_an_outage_that_ends_before_the_run_does(mlflow: Server, train: Path, cli: Cli) -> None:
    words = [sys.executable, "-m", "echelon.cli.main", "run", "--name", "fm", "--track", "mlflow"]
    mlflow.stop()
    follows = subprocess.Popen([*words, "train.py", "--wait"], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: Path("runs/fm/halfway").exists(), "the run to be half way")
        mlflow.start()
        wait_until(lambda: runs(mlflow) and len(history(mlflow, runs(mlflow)[0], "loss")) == 5, "five values")
        Path("runs/fm/go").touch()
        assert follows.wait(300) == 0
    finally:
        follows.kill()
        follows.wait()
    (run,) = runs(mlflow)
    assert history(mlflow, run, "loss") == [(step, step) for step in range(10)]
