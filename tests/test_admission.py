"""Admission: a place now, a place in the queue, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from echelon import planning
from echelon.admission import Queued, Way, admit, find_plan, find_way, overdue, shape_to_hold, way_of
from echelon.engines.base import NotAdmitted, ShapeKept
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, one_node
from echelon.errors import InvalidJob, Unplaceable
from echelon.handle import Run
from echelon.model.job import Job, Role
from echelon.model.open_shape import OpenShape
from echelon.model.plan import Plan
from echelon.model.pods.pod import PodOptions
from echelon.model.resources import Resources
from echelon.model.run import RunRef
from echelon.model.world import Group, World
from echelon.planning import Candidate


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


def worlds(*workers: int) -> Callable[..., list[Candidate]]:
    """Candidates for a job that leaves its shape open: these numbers of workers, with a GPU each."""
    groups = [Group(workers=number, procs=1, resources=Resources(gpus=1)) for number in workers]
    made = [Candidate(world=World(groups=(group,))) for group in groups]
    return lambda _job, _cluster, **_: made


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
    monkeypatch.setattr(planning, "candidates", worlds(*candidates))
    found = find_plan(job("open", 1), engine)
    if isinstance(found, Plan):
        assert found.world.groups[0].workers == len(found.placement.seats) == outcome
    else:
        assert found.reason.startswith(str(outcome))


def test_a_job_of_which_no_candidate_ever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "candidates", worlds(9, 8))
    with pytest.raises(Unplaceable, match="9 GPUs asked for"):
        find_plan(job("open", 1), machine(4))


@pytest.mark.parametrize(
    ("about", "by", "held"),
    [
        ({"keeps_queue": True, "gpus": True}, "engine", False),
        ({"gpus": True, "stays": True}, "command", True),
        ({"gpus": True, "stays": True, "placed": False}, "command", False),
        ({"gpus": True}, "scheduler", False),
        ({"stays": True}, "command", False),
        ({}, "scheduler", False),
    ],
)
def test_which_process_admits_a_run(about: dict[str, bool], by: str, held: bool) -> None:
    given = {"keeps_queue": False, "gpus": False, "stays": False, "placed": True, **about}
    assert way_of(**given) == Way(by=by, held=held)  # type: ignore[arg-type]


class Frozen(MemoryEngine):
    """Workers that keep the shape that they were recorded with."""

    def start(self, ref: RunRef, plan: Plan) -> None:
        if plan.world.groups[0].resources.gpus != 1:
            raise ShapeKept(World(groups=(replace(plan.world.groups[0], resources=Resources(gpus=1)),)))
        super().start(ref, plan)


def test_a_run_whose_shape_is_kept_is_admitted_in_it() -> None:
    engine = Frozen({"lasts.py": Act(lasts=True)}, cluster=one_node(gpus=2))
    plan = let_in(engine, job("one", 2))
    assert isinstance(plan, Plan)
    assert plan.world.groups[0].resources.gpus == 1


def test_a_run_is_held_in_the_shape_that_it_would_have() -> None:
    engine = machine(2)
    held = Way(by="command", held=True)
    let_in(engine, job("one", 2))
    waits = find_plan(job("two", 1), engine)
    assert isinstance(waits, Queued)
    plan = shape_to_hold(job("two", 1), engine, waits, held)
    assert plan is not None
    assert plan.world.groups[0].resources.gpus == 1
    assert shape_to_hold(job("two", 1), engine, waits, Way(by="engine")) is None


class Scaled(MemoryEngine):
    """A cluster that adds nodes for workers that find no room."""

    traits = replace(MemoryEngine.traits, keeps_queue=False)

    def adds_nodes(self) -> bool:
        return True


def test_where_nodes_are_added_what_fits_none_starts_without_a_place_and_says_what_is_not_known() -> None:
    engine = Scaled({"lasts.py": Act(lasts=True)}, cluster=one_node(gpus=2))
    told: list[str] = []
    never = find_plan(job("large", 4), engine, tell=told.append)
    let_in(engine, job("one", 2))
    full = find_plan(job("two", 1), engine, tell=told.append)
    for plan in (never, full):
        assert isinstance(plan, Plan)
        assert [seat.node for seat in plan.placement.seats] == [""]
    assert "not known" in told[0]
    assert "adds nodes" in told[1]
    open_shape = replace(job("open"), shape=OpenShape(least=4, most=4))
    with pytest.raises(Unplaceable):
        find_plan(open_shape, engine)  # how many of its GPUs such a node would have is not known either


def test_with_scale_up_the_user_says_that_nodes_are_added() -> None:
    engine = Remote({}, cluster=one_node(gpus=2))
    asked = job("large", 4)
    with pytest.raises(Unplaceable):
        find_plan(asked, engine)
    assert isinstance(find_plan(replace(asked, pod=PodOptions(scale_up=True)), engine), Plan)


class Remote(MemoryEngine):
    traits = replace(MemoryEngine.traits, keeps_queue=False)


def test_a_run_that_was_queued_for_too_long_is_over() -> None:
    engine = machine(1)
    record = engine.read(engine.record(job("one", 1, queue_timeout=60.0), None))
    assert overdue(record, record.created + 59) is None
    end = overdue(record, record.created + 61)
    assert end is not None
    assert (end.outcome, end.reason) == (
        "timed-out",
        "it was queued for 1 m 0 s, and not admitted (--queue-timeout)",
    )


def test_a_run_of_higher_priority_goes_first() -> None:
    engine = machine(2)
    let_in(engine, job("holds", 2))
    for each in (job("old", 1), job("urgent", 1, priority=1), job("later", 1, priority=-1)):
        assert isinstance(let_in(engine, each), Queued)
    assert engine.cluster().waiting == ("urgent", "old", "later")


def in_kueue(name: str, gpus: int, **more: Any) -> Job:
    return job(name, gpus, pod=PodOptions(queue="team"), **more)


def test_a_run_that_kueue_admits_takes_no_place_and_is_not_refused_for_one() -> None:
    engine = Remote({"lasts.py": Act(lasts=True)}, cluster=one_node(gpus=2))
    for wanted in (in_kueue("one", 2, workers=2), in_kueue("large", 4)):
        plan = find_plan(wanted, engine)
        assert isinstance(plan, Plan)
        assert {seat.node for seat in plan.placement.seats} == {""}
        assert find_way(wanted, engine, plan, stays=True) == Way(by="scheduler")


def test_several_jobs_are_started_by_the_command_once_kueue_has_admitted_them() -> None:
    engine = Remote({"lasts.py": Act(lasts=True)}, cluster=one_node(gpus=2))
    chief = Role(name="chief", workers=1, resources=Resources())
    two = in_kueue("two", 1, roles=(chief,))
    plan = find_plan(two, engine)
    assert find_way(two, engine, plan, stays=True) == Way(by="command", held=True)
    with pytest.raises(InvalidJob, match="admits a detached run only if it is a single Job"):
        find_way(two, engine, plan, stays=False)
    one = job("two", 1, pod=PodOptions(queue="team", job_kind="pytorchjob"), roles=(chief,))
    plan = find_plan(one, engine)
    assert find_way(one, engine, plan, stays=False) == Way(by="scheduler"), "one object has both groups"


def test_what_kueue_says_is_why_a_run_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = machine(2)

    def start(_ref: RunRef, _plan: Plan) -> None:
        raise NotAdmitted("queued in Kueue's queue team: no quota")

    monkeypatch.setattr(engine, "start", start)
    assert let_in(engine, job("one", 1)) == Queued(reason="queued in Kueue's queue team: no quota")


def test_on_this_machine_there_is_no_kueue() -> None:
    engine = machine(1)
    assert isinstance(let_in(engine, in_kueue("one", 1)), Plan)
    assert isinstance(let_in(engine, in_kueue("two", 1)), Queued)
