"""A pipeline run is looked for by its name; the place that was not asked for may be slow, or not there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.conftest import PATIENCE

from echelon import finding
from echelon.engines.abilities import Volumes
from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, choose_engine
from echelon.engines.memory.engine import MemoryEngine
from echelon.errors import EchelonError, Unreachable
from echelon.model.status import RunSummary
from echelon.model.volume import Volume
from echelon.notebook import removing
from echelon.notebook.removing import find_pipeline
from echelon.notebook.volume import RUN_LABEL
from echelon.sources import Target

STEP = RunSummary(
    name="flow-load",
    uri="k8s://team/flow-load",
    state="succeeded",
    created=1.0,
    workers=1,
    pipeline="flow",
)


class Cluster(MemoryEngine):
    """A cluster that has a step of the pipeline, and answers when it is told to."""

    def __init__(self, trouble: EchelonError | None = None) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.trouble = trouble

    def runs(self) -> Sequence[RunSummary]:
        self.answers.wait(PATIENCE)
        if self.trouble is not None:
            raise self.trouble
        return [STEP]


def put_there(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Cluster:
    def choose(place: str, **more: str | None) -> Engine:
        return cluster if place == CLUSTER else choose_engine(place, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(removing, "choose_engine", choose)
    monkeypatch.setattr(finding, "_PATIENCE", PATIENCE)
    return cluster


def test_a_cluster_that_does_not_answer_is_not_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = put_there(monkeypatch, Cluster())
    monkeypatch.setattr(finding, "_PATIENCE", 0.2)
    assert find_pipeline("flow", Target()) is None
    cluster.answers.set()


def test_one_that_answers_is_found_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_there(monkeypatch, Cluster()).answers.set()
    found = find_pipeline("flow", Target())
    assert found is not None
    assert [str(step) for step in found.steps] == [STEP.uri]


def test_trouble_there_is_told_to_those_who_asked_for_it_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_there(monkeypatch, Cluster(Unreachable("no answer", hint=""))).answers.set()
    assert find_pipeline("flow", Target()) is None
    with pytest.raises(Unreachable):
        find_pipeline("flow", Target(on=CLUSTER))


class Labelled(MemoryEngine):
    """An engine with the volume of a pipeline run, and one that somebody has only labelled as such."""

    def __init__(self) -> None:
        super().__init__()
        self.volumes = cast("Volumes", self)  # type: ignore[assignment]

    def list_all(self) -> list[Volume]:
        return [
            Volume(name=name, status="Bound", size=1, modes=(), labels={RUN_LABEL: "flow"})
            for name in ("flow", "precious")
        ]

    def remove(self, name: Any, tell: Any = None) -> Any:  # noqa: ARG002 - of a volume
        self.removed = [*getattr(self, "removed", []), name]


def test_a_volume_that_only_carries_the_label_stays() -> None:
    engine = Labelled()
    removing.remove_volumes([removing.Holding(pipeline="flow", engine=engine)], lambda _: None)
    assert engine.removed == ["flow"]
