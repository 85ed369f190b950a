"""What is settled of `--track` when a run is submitted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from echelon.errors import InvalidJob
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.pods.pod import parse_output
from echelon.model.settings import Settings
from echelon.model.surroundings import Surroundings
from echelon.preparation.tracking import settle_tracking


def job(tracker: str | None, **more: object) -> Job:
    return to_job(Settings(script="train.py", track=tracker, **more), name="fm")  # type: ignore[arg-type]


def settled(folder: Path, tracker: str = "tensorboard", **environment: str) -> Job:
    return settle_tracking(job(tracker), Surroundings(folder=folder, environment=environment))


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_commit_and_whether_files_differ_from_it(tmp_path: Path) -> None:
    tracking = settled(tmp_path).tracking
    assert tracking is not None
    assert (tracking.to, tracking.commit) == ("tensorboard", "")
    git(tmp_path, "init", "-q")
    assert settled(tmp_path).tracking == tracking  # a repository without a commit
    (tmp_path / "train.py").touch()
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "new").touch()
    found = settled(tmp_path).tracking
    assert found is not None
    assert (found.commit, found.changed) == (git(tmp_path, "rev-parse", "HEAD"), False)
    (tmp_path / "train.py").write_text("changed")
    found = settled(tmp_path).tracking
    assert found is not None
    assert found.changed


def test_what_names_no_tracker(tmp_path: Path) -> None:
    assert job(None).tracking is None
    assert job("none").tracking is None
    with pytest.raises(InvalidJob, match="is not a tracker") as raised:
        job("wandb")
    assert "wandb.init()" in raised.value.hint
    with pytest.raises(InvalidJob, match="one of mlflow, tensorboard, none"):
        job("neptune")


def test_metrics_that_could_go_nowhere_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match="MLFLOW_TRACKING_URI is not set"):
        settled(tmp_path, "mlflow")
    assert settled(tmp_path, "mlflow", MLFLOW_TRACKING_URI="http://host").tracking is not None
    on_volume = job("tensorboard", output="pvc:shelf")
    assert on_volume.pod.output == parse_output("pvc:shelf")
    with pytest.raises(InvalidJob, match="the results are on a volume"):
        settle_tracking(on_volume, Surroundings(folder=tmp_path, environment={}))
