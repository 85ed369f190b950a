"""`run -f --as native`: what is created of a file, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubeflow.kinds.test_trainjob import JOB, RUNTIME, joined
from tests.kubeflow.test_documents import CLAIM

from echelon.cli import main
from echelon.cli.kubeflow import manifests
from echelon.engines.abilities import Put
from echelon.errors import Refused, Unavailable
from echelon.model.engine.traits import Traits


class Cluster:
    """Takes what it is given, but for the kinds that it refuses; no controller takes a job up."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.made: list[str] = []
        self.left: list[str] = []

    def put(self, objects: Sequence[Mapping[str, Any]], *, dry_run: bool = False) -> list[Put]:
        kinds = [str(each["kind"]) for each in objects]
        if not dry_run:
            if set(kinds) & set(self.refused):
                raise Refused("the cluster refuses it")
            self.made += kinds
        return [Put(kind=each["kind"], name=each["metadata"]["name"], done="created") for each in objects]

    def take_back(self, objects: Sequence[Mapping[str, Any]], _done: Sequence[Put]) -> None:
        self.left = [kind for kind in self.made if kind not in {each["kind"] for each in objects}]

    def check_taken_up(self, *_given: object) -> None:
        raise Unavailable("no controller")


@pytest.mark.parametrize("order", [(RUNTIME, JOB, CLAIM), (CLAIM, JOB, RUNTIME)])
def test_the_runtime_comes_first_and_the_job_last(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    order: tuple[str, ...],
) -> None:
    cluster = Cluster()
    engine = SimpleNamespace(manifests=cluster, traits=Traits(place="a cluster", remote=True))
    monkeypatch.setattr(manifests, "engine_for", lambda _settings: engine)
    Path("job.yaml").write_text(joined(*order))
    assert main.call(["run", "-f", "job.yaml", "--as", "native", "--dry-run"]) == 0
    assert not cluster.made
    assert "ClusterTrainingRuntime torch-distributed: would be created" in capsys.readouterr().err
    main.call(["run", "-f", "job.yaml", "--as", "native"])
    assert "no controller" in capsys.readouterr().err
    assert cluster.made == ["ClusterTrainingRuntime", "PersistentVolumeClaim", "TrainJob"]


def test_a_job_that_is_refused_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster("TrainJob")
    engine = SimpleNamespace(manifests=cluster, traits=Traits(place="a cluster", remote=True))
    monkeypatch.setattr(manifests, "engine_for", lambda _settings: engine)
    Path("job.yaml").write_text(joined(RUNTIME, JOB))
    main.call(["run", "-f", "job.yaml", "--as", "native"])
    told = capsys.readouterr().err
    assert "the cluster refuses it" in told
    assert "what was created and replaced of the files is undone" in told
    assert (cluster.made, cluster.left) == (["ClusterTrainingRuntime"], [])
