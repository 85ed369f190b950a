"""The trials of a sweep as an executor's work, on the memory engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.executor.parent import exit_code_of
from echelon.model.engine.traits import Traits
from echelon.model.job import Job
from echelon.model.program import Objective, Step
from echelon.model.resources import Resources
from echelon.model.run import RunRef
from echelon.sweeps import kept
from echelon.sweeps.__main__ import execute
from echelon.sweeps.kept import Sweep
from echelon.sweeps.spaces import Trial
from echelon.sweeps.trials import Trials, standing

ACTS = {"well.py": Act(), "fails.py": Act(error="ValueError: bad luck", exit_code=3)}
JOB = Job(name="tune", script="well.py", args=("{lr}",), framework="plain")


def sweep(count: int = 4, **more: object) -> Sweep:
    trials = tuple(Trial(name=str(number), values={"lr": f"0.{number}"}) for number in range(1, count + 1))
    return replace(Sweep(name="tune", job=JOB, trials=trials, key="k"), **more)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[Step]]:
    def run(asked: Sweep, engine: MemoryEngine, told: dict[str, Step] | None = None) -> list[Step]:
        (tmp_path / "sweep.json").unlink(missing_ok=True)
        kept.write(tmp_path, asked, None)
        return execute(tmp_path, told or {}, lambda _event: None, engine=engine)

    return run


def test_each_trial_is_a_run_of_its_own_with_its_values(
    run: Callable[..., list[Step]], tmp_path: Path
) -> None:
    engine = MemoryEngine(ACTS)
    steps = run(sweep(3), engine)
    assert exit_code_of(steps) == 0
    jobs = {row.name: engine.read(RunRef(engine="memory", name=row.name)).job for row in engine.runs()}
    assert {name: (job.args, job.env["ECHELON_PARAM_LR"]) for name, job in jobs.items()} == {
        f"tune-{number}": ((f"0.{number}",), f"0.{number}") for number in (1, 2, 3)
    }
    assert {job.results for job in jobs.values()} == {str(tmp_path / str(number)) for number in (1, 2, 3)}
    assert all(job.parent is not None and job.parent.run == "tune" for job in jobs.values())
    assert (tmp_path / "trials.csv").read_text().count("\n") == 4


def test_those_that_fail_fail_alone_and_are_what_is_run_again(run: Callable[..., list[Step]]) -> None:
    engine = MemoryEngine(ACTS)
    failing = sweep(2, job=replace(JOB, script="fails.py"))
    steps = run(failing, engine)
    assert [step.state for step in steps] == ["failed", "failed"]
    assert exit_code_of(steps) == 3
    told = {steps[0].name: steps[0], steps[1].name: replace(steps[1], state="succeeded", value=0.5)}
    again = run(sweep(2), engine, told)
    assert [(step.state, step.value) for step in again] == [("succeeded", None), ("kept", 0.5)]


def test_with_fail_fast_no_other_starts(run: Callable[..., list[Step]]) -> None:
    engine = MemoryEngine(ACTS)
    steps = run(sweep(job=replace(JOB, script="fails.py"), fail_fast=True, parallel=1), engine)
    assert [step.state for step in steps] == ["failed", *["not-reached"] * 3]
    assert [row.name for row in engine.runs()] == ["tune-1"]


def test_how_trials_stand_for_another_start() -> None:
    told = {
        "1": Step(name="1", state="succeeded", run="memory://tune-1", value=1.0, params={"lr": "0.1"}),
        "2": Step(name="2", state="failed", run="memory://tune-2", reason="bad luck"),
        "3": Step(name="3", state="running", run="memory://tune-3"),
    }
    found = standing(sweep(), told)
    assert [(step.state, step.run, step.value) for step in found] == [
        ("kept", "", 1.0),
        ("waiting", "", None),
        ("running", "memory://tune-3", None),
        ("waiting", "", None),
    ]
    assert found[1].reason == ""


def work(tmp_path: Path, engine: MemoryEngine, asked: Sweep, states: str = "") -> Trials:
    made = Trials(asked, None, tmp_path, engine)
    for number, state in enumerate(states.split(), 1):
        made.changed(Step(name=str(number), state=state))  # type: ignore[arg-type]
    return made


def names(count: int) -> list[str]:
    return [str(number) for number in range(1, count + 1)]


def test_as_many_as_the_user_says(tmp_path: Path) -> None:
    made = work(tmp_path, MemoryEngine(ACTS), sweep(parallel=2), "running running running")
    assert made.has_room(names(2))
    assert not made.has_room(names(3))


def test_on_this_machine_as_many_ranks_as_it_has_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    made = work(tmp_path, MemoryEngine(ACTS), sweep(job=replace(JOB, procs=2)), "running running")
    assert made.has_room(names(2))
    assert not made.has_room(names(3))


def in_cluster() -> MemoryEngine:
    engine = MemoryEngine(ACTS)
    engine.traits = Traits(place="a cluster", remote=True)  # type: ignore[misc]
    return engine


@pytest.mark.parametrize(
    ("states", "room"),
    [
        ("running running running", True),
        ("running queued running", False),
        ("running " * 3 + "starting " * 7, True),
        ("running " * 3 + "starting " * 8, False),
        ("running " * 99, True),
        ("running " * 100, False),
    ],
)
def test_in_a_cluster_until_one_waits(tmp_path: Path, states: str, room: bool) -> None:
    count = len(states.split())
    made = work(tmp_path, in_cluster(), sweep(count + 1), states)
    assert made.has_room(names(count + 1)) == room


def test_trials_with_gpus_wait_in_the_queue_of_this_machine_too(tmp_path: Path) -> None:
    asked = sweep(job=replace(JOB, resources=Resources(gpus=1)))
    assert work(tmp_path, MemoryEngine(ACTS), asked, "running " * 3).has_room(names(4))
    assert not work(tmp_path, MemoryEngine(ACTS), asked, "running running queued").has_room(names(4))


def test_what_is_written_down_is_read_again_and_private(tmp_path: Path) -> None:
    asked = sweep(objective=Objective(metric="loss", goal="maximize", of="mean", count=3))
    kept.write(tmp_path, asked, None)
    assert kept.read(tmp_path) == (asked, None)
    assert (tmp_path / "sweep.json").stat().st_mode & 0o777 == 0o600
