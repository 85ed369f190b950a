"""Which seats of a run whose size changes are filled, and which it gives back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.resources import Amount, Resources
from echelon.planning import fit
from echelon.supervisor.seats import Change, decide

MOST, LEAST = 4, 1


def machine(*holders: str | None, cpus: float = 64.0) -> Cluster:
    gpus = tuple(Gpu(id=str(at), model="A", memory=1, holder=holder) for at, holder in enumerate(holders))
    node = Node(name="here", cpus=cpus, memory=2**40, free_cpus=cpus, free_memory=2**40, gpus=gpus)
    return Cluster(nodes=(node,))


def job(
    name: str = "mine", *, gpus: int = 1, workers: int = MOST, least: int | None = None, **more: Any
) -> Job:
    needs = Resources(gpus=gpus, **more.pop("needs", {}))
    return Job(
        name=name, script="x.py", framework="plain", workers=workers, least=least, resources=needs, **more
    )


MINE = job(least=LEAST)


def started(cluster: Cluster, wanted: Job = MINE) -> Plan:
    plan = fit(wanted, cluster)
    assert isinstance(plan, Plan)
    return plan


def filled(plan: Plan) -> list[int]:
    return [seat.worker for seat in plan.placement.seats if seat.node]


def test_it_starts_with_those_that_there_is_room_for() -> None:
    plan = started(machine(None, "other", None, "other"))
    assert [seat.gpus for seat in plan.placement.seats] == [("0",), ("2",), (), ()]
    (group,) = plan.world.groups
    assert (group.workers, group.least) == (MOST, LEAST)


def test_it_waits_for_the_fewest() -> None:
    wanted = replace(MINE, least=2)
    assert not isinstance(fit(wanted, machine(None, "other", "other", "other")), Plan)


def test_without_gpus_it_starts_with_the_most() -> None:
    assert filled(started(machine(), job(gpus=0, least=1))) == [0, 1, 2, 3]


def test_with_requests_it_starts_with_those_that_fit() -> None:
    small = job(gpus=0, least=1, needs={"cpus": Amount(request=1.0)})
    assert filled(started(machine(cpus=3.0), small)) == [0, 1, 2]


def test_seats_are_filled_when_gpus_become_free() -> None:
    plan = started(machine(None, "other", "other", "other"))
    change = decide(plan, MINE, machine("mine", None, "other", None), [], ())
    assert [(seat.worker, seat.node, seat.gpus) for seat in change.come] == [
        (1, "here", ("1",)),
        (2, "here", ("3",)),
    ]


def test_runs_that_wait_come_first_unless_their_priority_is_lower() -> None:
    plan = started(machine(None, "other", "other", "other"))
    free = machine("mine", None, "other", "other")
    same, lower = job("same", gpus=4, workers=1), job("lower", gpus=4, workers=1, priority=-1)
    assert decide(plan, MINE, free, [same], ()) == Change()
    assert [seat.worker for seat in decide(plan, MINE, free, [lower], ()).come] == [1]


def test_the_highest_seats_are_given_back_to_a_higher_priority_as_many_as_it_takes() -> None:
    plan = started(machine(None, None, None, None))
    urgent = job("urgent", gpus=2, workers=1, priority=5)
    full = machine("mine", "mine", "mine", "mine")
    assert decide(plan, MINE, full, [urgent], ()) == Change(leave=(3, 2), to="urgent")
    assert decide(plan, MINE, full, [urgent], (2, 3)) == Change()  # they are leaving
    whole = replace(urgent, resources=Resources(gpus=4))
    assert decide(plan, MINE, full, [whole], ()) == Change()  # it would not help
    assert decide(plan, replace(MINE, least=3), full, [urgent], ()) == Change()
    assert decide(plan, MINE, full, [replace(urgent, priority=0)], ()) == Change()


@settings(max_examples=examples(150), deadline=None)
@given(
    holders=st.lists(st.sampled_from(["mine", "other", None]), min_size=1, max_size=8),
    least=st.integers(1, 3),
    wants=st.integers(1, 8),
    priority=st.integers(-1, 1),
)
def test_never_below_the_fewest_and_never_what_others_have(
    holders: list[str | None], least: int, wants: int, priority: int
) -> None:
    wanted = replace(MINE, least=least)
    empty = machine(*(None if holder == "mine" else holder for holder in holders))
    plan = fit(wanted, empty) if holders.count("mine") >= least else None
    if not isinstance(plan, Plan):
        return
    held = {gpu for seat in plan.placement.seats for gpu in seat.gpus}
    free = machine(*("mine" if str(at) in held else each for at, each in enumerate(empty_of(empty))))
    change = decide(plan, wanted, free, [job("next", gpus=wants, workers=1, priority=priority)], ())
    assert not change.leave or (priority == 1 and len(filled(plan)) - len(change.leave) >= least)
    assert 0 not in change.leave
    taken = [gpu for seat in change.come for gpu in seat.gpus]
    assert len(set(taken)) == len(taken)
    assert {gpu.id for gpu in free.nodes[0].gpus if gpu.holder is None} >= set(taken)
    assert not change.come or priority < 0


def empty_of(cluster: Cluster) -> list[str | None]:
    return [gpu.holder for gpu in cluster.nodes[0].gpus]
