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
from echelon.model.engine.volume import Volume
from echelon.model.status import RunSummary
from echelon.notebook import removing
from echelon.notebook.analysis.cells import About
from echelon.notebook.kept.folder import PipelineFolder, PipelineRecord, write_record
from echelon.notebook.kept.noted import note_pipeline
from echelon.notebook.kept.volume import RUN_LABEL, RunVolume, open_volume, wanted_volume
from echelon.notebook.removing import find_pipeline
from echelon.preparation.sources import Target

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
        self.removed: list[tuple[str, str]] = []

    def list_all(self) -> list[Volume]:
        return [
            Volume(
                name=name, status="Bound", size=1, modes=(), labels={RUN_LABEL: "flow"}, uid=f"uid-of-{name}"
            )
            for name in ("flow", "precious")
        ]

    def remove(self, name: Any, uid: Any = "", *, force: bool = False) -> Any:  # noqa: ARG002 - of a volume
        self.removed.append((name, uid))


def removal(engine: Labelled, **more: str) -> list[str]:
    said: list[str] = []
    removing.remove_volumes([removing.Holding(pipeline="flow", engine=engine, **more)], said.append)
    return said


def test_a_volume_that_only_carries_the_label_stays(home: Path) -> None:
    engine = Labelled()
    assert removal(engine, made="uid-of-flow", volume="flow/flow") == [
        "volume flow, which was made for flow, is removed"
    ]
    assert engine.removed == [("flow", "uid-of-flow")]


@pytest.mark.core
@pytest.mark.parametrize("made", ["", "uid-of-another"])
def test_a_volume_that_has_the_name_and_the_label_but_not_the_uid_stays_and_is_named(
    home: Path, made: str
) -> None:
    """As when a colleague made one of that name, or after the pipeline's own was deleted."""
    engine = Labelled()
    (said,) = removal(engine, made=made, volume="flow/flow")
    assert said.startswith(
        "volume flow stays: nothing shows that it was made for flow; `echelon volume rm flow`"
    )
    assert engine.removed == []


@pytest.mark.parametrize(("own", "goes"), [("uid-of-flow", True), ("uid-of-another", False), ("", False)])
def test_what_this_machine_has_noted_counts_before_what_steps_say(
    home: Path, tmp_path: Path, own: str, goes: bool
) -> None:
    folder = PipelineFolder(tmp_path / "flow")
    folder.path.mkdir()
    volume = RunVolume(claim="flow", path="flow", made=True, uid=own)
    record = PipelineRecord(name="flow", notebook="b.ipynb", created=1.0, steps={}, volume=volume)
    write_record(folder, record)
    note_pipeline(folder)
    engine = Labelled()
    removal(engine, made="" if not own else "uid-of-flow")
    assert bool(engine.removed) is goes


@pytest.mark.parametrize("how", [{"missing": "the files of the steps stay on pvc:flow"}, {"over": False}])
def test_a_volume_with_the_only_copy_of_files_stays(home: Path, tmp_path: Path, how: dict[str, Any]) -> None:
    folder = PipelineFolder(tmp_path / "flow")
    folder.path.mkdir()
    volume = RunVolume(claim="flow", path="flow", made=True, uid="uid-of-flow")
    record = PipelineRecord(name="flow", notebook="b.ipynb", created=1.0, steps={}, volume=volume, **how)
    write_record(folder, record)
    note_pipeline(folder)
    engine = Labelled()
    (said,) = removal(engine, made="uid-of-flow", volume="flow/flow")
    assert said.startswith("volume flow stays: files of the steps of flow are there alone; `echelon cp pvc:")
    assert engine.removed == []


def test_a_volume_of_the_users_own_stays(home: Path) -> None:
    engine = Labelled()
    said = removal(engine, volume="data/runs/flow-ab12")
    assert said[-1] == "variables and files of flow stay on pvc:data/runs/flow-ab12"
    assert engine.removed == []


def test_a_pipeline_knows_the_uid_of_the_volume_that_is_made_for_it() -> None:
    class Making:
        def create(self, name: str, **given: Any) -> Volume:
            assert given["labels"] == {RUN_LABEL: name}
            return Volume(name=name, status="Pending", size=1, modes=(), uid="given-by-the-server")

    volumes = cast("Volumes", Making())
    wanted = wanted_volume("new:1Gi@shared", None, About())
    assert open_volume(wanted, "flow", volumes).uid == "given-by-the-server"
    assert open_volume(wanted, "flow", volumes, dry_run=True).uid == ""
