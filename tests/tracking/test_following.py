"""Which process forwards a run's metrics, and where they go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.errors import InvalidJob
from echelon.handle import Run
from echelon.metrics.event_files import EventFile
from echelon.model.job import Job
from echelon.model.tracking import Tracking
from echelon.submit import Prepared, submit
from echelon.tracking.following import Turn

LINES = ("step=1 loss=2", "step=2 loss=1")


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def start(results: Path, tracker: str | None = "tensorboard", **act: Any) -> Run:
    tracking = None if tracker is None else Tracking(to=tracker)  # type: ignore[arg-type]
    job = Job(
        name="fm", script="train.py", framework="plain", results=str(results), tracking=tracking, workers=2
    )
    return submit(Prepared(job=job), MemoryEngine({"train.py": Act(lines=LINES, **act)}))


def values(results: Path) -> dict[str, list[float]]:
    files = sorted(results.glob("tracking/**/*.echelon"))
    return {path.parent.name: [each.value for each in EventFile(path).read()] for path in files}


def test_wait_forwards_what_the_ranks_print(tmp_path: Path) -> None:
    run = start(tmp_path)
    told: list[str] = []
    assert run.wait(tell=told.append).state == "succeeded"
    assert values(tmp_path) == {"rank-0": [2.0, 1.0], "rank-1": [2.0, 1.0]}
    assert run.metrics()["source"] == [None] * 4
    assert told == [f"metrics: {tmp_path}/tracking; `tensorboard --logdir {tmp_path}/tracking` shows them"]
    run.wait()
    run.track("tensorboard")
    assert values(tmp_path) == {"rank-0": [2.0, 1.0], "rank-1": [2.0, 1.0]}


def test_a_run_without_a_tracker_has_none_until_it_is_asked_for(tmp_path: Path) -> None:
    run = start(tmp_path, tracker=None)
    run.wait()
    assert not (tmp_path / "tracking").exists()
    run.track("tensorboard")
    assert values(tmp_path) == {"rank-0": [2.0, 1.0], "rank-1": [2.0, 1.0]}
    with pytest.raises(InvalidJob, match="documents no interface"):
        run.track("wandb")


def test_a_run_that_goes_on_is_sent_as_far_as_it_has_come(tmp_path: Path) -> None:
    run = start(tmp_path, lasts=True)
    run.track("tensorboard")
    assert values(tmp_path) == {"rank-0": [2.0, 1.0], "rank-1": [2.0, 1.0]}
    run.stop()


def test_where_there_is_no_server_the_run_ends_all_the_same(tmp_path: Path) -> None:
    told: list[str] = []
    assert start(tmp_path, "mlflow").wait(tell=told.append).state == "succeeded"
    (text,) = told
    assert text.startswith("metrics are not forwarded: track: 'mlflow' has no address")
    assert text.endswith("`echelon metrics fm --track mlflow` sends them later")


def test_one_process_of_this_machine_forwards_them() -> None:
    first, second = Turn("run"), Turn("run")
    assert first.take()
    assert not second.take()
    assert Turn("other").take()
    first.end()
    assert second.take()
    second.end()
    second.end()


def test_a_lock_that_was_removed_is_none() -> None:
    first, second = Turn("run"), Turn("run")
    assert first.take()
    there = os.open(first._path, os.O_RDWR)
    first.end()
    assert second.take()
    assert not Turn("run").take()
    second.end()
    os.close(there)
