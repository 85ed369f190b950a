"""The runs that a run is made of: which there are, their stop and their removal with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import echelon
from echelon.engines.abilities import Volumes
from echelon.errors import InvalidJob, StateTrouble, UnknownRun
from echelon.model.engine.volume import Volume
from echelon.model.program import Step
from echelon.model.status import FINAL
from tests.conftest import PATIENCE
from tests.parents import IN_CLUSTER, NOTEBOOK, Cluster, end, kill, parent, put_there, step_run, tell


def test_the_runs_of_its_steps(home: Path) -> None:
    load = step_run("load")
    step_run("lost")  # its executor was killed before it could write that down
    step_run("again")  # of an earlier start
    echelon.run(command=["true"], name="t-1-refused", framework="plain").wait(PATIENCE)
    run = parent(
        Step(name="load", state="succeeded", run=str(load)),
        Step(name="lost", state="recorded"),
        Step(name="again", state="waiting"),
        Step(name="refused", state="failed", reason="the name is taken"),
        Step(name="taken", state="cached"),
    )
    assert {step: str(each) for step, each in run.steps().items()} == {
        "load": "local://t-1-load",
        "lost": "local://t-1-lost",
    }
    assert load.steps() == {}


@pytest.mark.core
def test_its_removal_takes_its_steps_and_nothing_else(home: Path) -> None:
    first, second = step_run("load"), step_run("train")
    other = echelon.run(command=["true"], name="t-1-other", framework="plain")
    other.wait(PATIENCE)
    run = parent(
        Step(name="load", state="succeeded", run=str(first)),
        Step(name="train", state="waiting"),
        Step(name="other", state="failed"),
    )
    with pytest.raises(StateTrouble, match="has not ended"):
        run.remove()
    assert first.status().state == "succeeded"
    end(run)
    run.remove()
    for gone in (run, first, second):
        with pytest.raises(UnknownRun):
            gone.status()
    assert other.status().state == "succeeded"  # it only has the name


def test_steps_of_an_earlier_start_go_too(home: Path) -> None:
    load = step_run("load")
    run = parent(Step(name="load", state="succeeded", run=str(load)))
    end(run, 3)
    Path("end-t-1").unlink()
    run.resume()
    end(run, 3)  # before it could tell of any step
    run.remove()
    with pytest.raises(UnknownRun):
        load.status()


def lost_with_a_step(home: Path) -> tuple[echelon.Run, echelon.Run]:
    step = step_run("train", "sleep", "600")
    run = parent(Step(name="train", state="running", run=str(step)), Step(name="use"))
    kill(run)
    return run, step


@pytest.mark.core
def test_a_step_that_outlives_its_parent_keeps_it_and_is_stopped_with_it(home: Path) -> None:
    run, step = lost_with_a_step(home)
    status = run.status()
    assert (status.state, [each.state for each in status.steps]) == ("lost", ["lost", "not-reached"])
    assert [each.name for each in run.left_running()] == ["t-1-train"]
    with pytest.raises(StateTrouble, match="step train of 't-1' still runs"):
        run.remove(force=True)
    run.stop()
    assert step.status().state == "stopped"
    assert run.left_running() == []
    assert run.status().state == "lost"
    run.remove()
    with pytest.raises(UnknownRun):
        step.status()


class WithVolume(Cluster):
    """A cluster with one volume."""

    def __init__(self, uid: str) -> None:
        super().__init__()
        self.volumes = cast("Volumes", self)  # type: ignore[assignment]
        self.uid, self.gone = uid, False

    def read(self, ref: Any) -> Any:
        if not isinstance(ref, str):
            return super().read(ref)
        if not self.uid:
            raise InvalidJob("volume", ref, "is not there")
        return Volume(name=ref, status="Bound", size=1, modes=(), uid=self.uid)

    def remove(self, ref: Any, *more: Any, **named: Any) -> Any:
        if not isinstance(ref, str):
            return super().remove(ref, *more, **named)
        assert more == (self.uid,)
        self.gone = True
        return None


@pytest.mark.parametrize(
    ("there", "volume", "uid", "home_at", "force", "said", "goes"),
    [
        ("u", "t-1", "u", "here:/runs/t-1", False, "volume t-1, which was made for t-1, is removed", True),
        ("u", "t-1", "u", None, True, "volume t-1, which was made for t-1, is removed", True),
        ("u", "t-1", "u", None, False, "are there alone; `echelon cp pvc:t-1/t-1/work DIR`", False),
        ("another", "t-1", "u", "here:/runs/t-1", False, "volume t-1 stays: it was not made for t-1", False),
        ("", "t-1", "u", "here:/runs/t-1", False, None, False),
        ("u", "data/runs/t-1-ab", "", "here:/x", True, "files of t-1 stay on pvc:data/runs/t-1-ab", False),
    ],
)  # fmt: skip
def test_the_volume_that_was_made_for_it(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: str,
    volume: str,
    uid: str,
    home_at: str | None,
    force: bool,
    said: str | None,
    goes: bool,
) -> None:
    cluster = WithVolume(there)
    put_there(monkeypatch, cluster)
    step = step_run("load", engine=cluster)
    run = parent(program=replace(IN_CLUSTER, volume=volume, volume_uid=uid))
    tell(run, Step(name="load", state="succeeded", run=str(step)), fetched_to=home_at)
    end(run)
    told: list[str] = []
    run.remove(told.append, force=force)
    assert cluster.gone is goes
    assert cluster.names() == []
    assert len(told) == (said is not None)
    assert all(said in each for each in told if said)


def test_one_whose_steps_are_in_a_cluster_is_stopped_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    put_there(monkeypatch, cluster)
    step = step_run("train", "sleep", engine=cluster)
    run = parent(Step(name="train", state="running", run=str(step)), program=IN_CLUSTER)
    kill(run)
    assert step.status().state not in FINAL
    run.stop(now=True)
    assert step.status().state == "stopped"


def test_what_is_no_result_is_left_out_of_its_results(home: Path) -> None:
    run = parent(program=replace(NOTEBOOK, private=("secret", "program")))
    folder = Path("runs/t-1")
    (folder / "program").mkdir()
    for name in ("secret", "program/main.py", "model.pt"):
        (folder / name).write_text(name)
    end(run)
    run.get(to="all")
    assert Path("all/model.pt").exists()
    assert not Path("all/secret").exists()
    assert not Path("all/program").exists()
    assert [path.name for path in run.get_matching("[!.]*", "some")] == ["logs", "model.pt"]
