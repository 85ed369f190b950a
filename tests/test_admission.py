"""Admission: a place now, a place in the queue, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echelon import admission
from echelon.admission import Queued, admit, find_plan
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, one_node
from echelon.errors import Unplaceable
from echelon.handle import Run
from echelon.model.job import Job, Role
from echelon.model.plan import Plan
from echelon.model.resources import Resources
from echelon.model.run import RunRef
from echelon.model.world import Group, World


def job(name: str, gpus: int = 0, *, workers: int = 1, **more: Any) -> Job:
    return Job(
        name=name,
        script="lasts.py",
        framework="plain",
        workers=workers,
        resources=Resources(gpus=gpus),
        **more,
    )


def machine(gpus: int) -> MemoryEngine:
    return MemoryEngine({"lasts.py": Act(lasts=True)}, cluster=one_node(gpus=gpus))


def let_in(engine: MemoryEngine, wanted: Job) -> Plan | Queued:
    return admit(engine.record(wanted, None), engine)


def test_looking_changes_nothing() -> None:
    engine = machine(2)
    before = engine.cluster()
    assert isinstance(find_plan(job("one", 2), engine), Plan)
    assert engine.cluster() == before
    assert list(engine.runs()) == []


def test_what_fits_starts_and_has_what_it_was_promised() -> None:
    engine = machine(4)
    plan = let_in(engine, job("one", 1, workers=2))
    assert isinstance(plan, Plan)
    assert engine.read(RunRef(engine="memory", name="one")).plan == plan
    assert sorted(gpu for seat in plan.placement.seats for gpu in seat.gpus) == ["0", "1"]


def test_what_does_not_fit_now_stands_in_line_and_says_why() -> None:
    engine = machine(2)
    let_in(engine, job("one", 2))
    outcome = let_in(engine, job("two", 1))
    assert outcome == Queued(reason="waiting for 1 GPU: 0 of 2 free, held by one")
    status = Run(RunRef(engine="memory", name="two"), engine).status()
    assert (status.state, status.reason) == ("queued", outcome.reason)


def test_nobody_jumps_the_line() -> None:
    engine = machine(2)
    let_in(engine, job("one", 1))
    let_in(engine, job("two", 2))
    let_in(engine, job("three", 2))
    outcome = let_in(engine, job("four", 1))
    assert outcome == Queued(reason="queued behind two and 1 more")
    again = admit(RunRef(engine="memory", name="two"), engine)
    assert isinstance(again, Queued)
    assert "behind" not in again.reason, "nobody waits behind itself"
    engine.stop(RunRef(engine="memory", name="one"))
    assert admit(RunRef(engine="memory", name="three"), engine) == Queued(reason="queued behind two")
    assert isinstance(admit(RunRef(engine="memory", name="two"), engine), Plan)


def test_who_needs_no_gpu_need_not_wait_for_those_who_do() -> None:
    engine = machine(1)
    let_in(engine, job("one", 1))
    let_in(engine, job("two", 1))
    assert isinstance(let_in(engine, job("three")), Plan)


def test_a_role_that_needs_gpus_waits_like_a_worker() -> None:
    engine = machine(1)
    chief = Role(name="chief", workers=1, resources=Resources(gpus=1))
    let_in(engine, job("one", 1))
    assert isinstance(let_in(engine, job("two", roles=(chief,))), Queued)
    assert engine.cluster().waiting == ("two",)
    assert isinstance(let_in(engine, job("three", 1)), Queued)


def test_what_never_fits_is_refused() -> None:
    engine = machine(2)
    let_in(engine, job("one", 2))
    with pytest.raises(Unplaceable, match="3 GPUs"):
        find_plan(job("two", 3), engine)


def test_a_plan_that_has_grown_old_is_made_anew() -> None:
    engine = machine(2)
    one, two = job("one", 1), job("two", 1)
    old = find_plan(two, engine)
    assert isinstance(old, Plan)
    let_in(engine, one)
    ref = engine.record(two, None)
    plan = admit(ref, engine, old)
    assert isinstance(plan, Plan)
    assert plan.placement != old.placement, "its GPU was taken in the meantime, but another is free"
    assert engine.read(ref).plan == plan


def test_a_look_that_has_grown_old_leads_to_the_line() -> None:
    engine = machine(1)
    two = job("two", 1)
    old = find_plan(two, engine)
    let_in(engine, job("one", 1))
    assert isinstance(admit(engine.record(two, None), engine, old), Queued)


def worlds(*workers: int) -> Callable[..., list[World]]:
    """Candidates for a job that leaves its shape open: these numbers of workers, with a GPU each."""
    made = [
        World(groups=(Group(workers=number, procs=1, resources=Resources(gpus=1)),)) for number in workers
    ]
    return lambda _job, _cluster: made


@pytest.mark.parametrize(
    ("candidates", "outcome"),
    [
        ((2, 1), 2),  # the first that fits, not the smallest
        ((4, 3, 1), 1),
        ((9, 2), 2),  # what never fits is passed over
        ((3, 4), "waiting for 3 GPUs: 2 of 4 free, held by other"),
        ((9, 3), "waiting for 3 GPUs: 2 of 4 free, held by other"),
    ],
)
def test_the_first_candidate_that_fits_is_planned(
    monkeypatch: pytest.MonkeyPatch, candidates: tuple[int, ...], outcome: int | str
) -> None:
    engine = machine(4)
    let_in(engine, job("other", 2))
    monkeypatch.setattr(admission, "candidates", worlds(*candidates))
    found = find_plan(job("open", 1), engine)
    if isinstance(found, Plan):
        assert found.world.groups[0].workers == len(found.placement.seats) == outcome
    else:
        assert found.reason == outcome


def test_a_job_of_which_no_candidate_ever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "candidates", worlds(9, 8))
    with pytest.raises(Unplaceable, match="9 GPUs asked for"):
        find_plan(job("open", 1), machine(4))
