"""From a job and its seats to the plan."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.engines.memory.script import one_node
from echelon.model.engine.cluster import Cluster, Node
from echelon.model.job import Job, Role
from echelon.model.plan import Placement, Plan, Seat
from echelon.model.resources import Amount, Resources
from echelon.model.world import Group, World, members, rank_count, worker_count
from echelon.placement import place
from echelon.planning import candidates, command_line, make_plan, threads_per_rank


def job(**more: Any) -> Job:
    more = {"framework": "plain", **more}
    return Job(
        name="the-run",
        **({"script": "train.py"} | more if "command" not in more and "module" not in more else more),
    )


def make_world(wanted: Job) -> World:
    (only,) = candidates(wanted, one_node())
    return only.world


def role(name: str, workers: int = 1, **more: Any) -> Role:
    return Role(name=name, workers=workers, resources=Resources(**more))


def nodes(**cpus: float) -> Cluster:
    return Cluster(
        nodes=tuple(
            Node(name=name, cpus=count, memory=1, free_cpus=count, free_memory=1)
            for name, count in cpus.items()
        )
    )


def seated(*where: str) -> Placement:
    return Placement(seats=tuple(Seat(worker=number, node=name) for number, name in enumerate(where)))


def test_the_chief_leads_and_those_who_serve_come_last() -> None:
    world = make_world(job(workers=2, procs=2, roles=(role("ps", 2), role("evaluator"), role("chief"))))
    assert [(group.role, group.workers, group.procs, group.essential) for group in world.groups] == [
        ("chief", 1, 1, True),
        ("worker", 2, 2, False),
        ("ps", 2, 1, False),
        ("evaluator", 1, 1, False),
    ]
    found = list(members(world))
    assert [(member.role, member.index, member.first_rank) for member in found] == [
        ("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 3), ("ps", 0, 5), ("ps", 1, 6), ("evaluator", 0, 7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("roles", "essential"),
    [
        ((), {"worker"}),
        (("ps",), {"worker"}),
        (("evaluator",), {"worker"}),
        (("chief",), {"chief", "worker"}),
        (("chief", "evaluator"), {"chief", "worker"}),
        (("ps", "chief"), {"chief"}),  # it drives the workers, who would wait for more for ever
    ],
)
def test_whose_end_is_the_end_of_the_run(roles: tuple[str, ...], essential: set[str]) -> None:
    world = make_world(job(roles=tuple(map(role, roles))))
    assert {group.role for group in world.groups if group.essential} == essential


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["worker", "ps", "chief"]), st.integers(1, 4), st.integers(1, 4)),
        min_size=1,
    )
)
def test_workers_and_ranks_are_numbered_through(groups: list[tuple[str, int, int]]) -> None:
    world = World(
        groups=tuple(Group(role=role, workers=workers, procs=procs) for role, workers, procs in groups)
    )
    found = list(members(world))
    assert [member.worker for member in found] == list(range(worker_count(world)))
    ranks = [rank for member in found for rank in range(member.first_rank, member.first_rank + member.procs)]
    assert ranks == list(range(rank_count(world)))
    for name in {role for role, _, _ in groups}:
        indices = [member.index for member in found if member.role == name]
        assert indices == list(range(len(indices)))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (job(args=("--epochs", "3")), ("python3", "train.py", "--epochs", "3")),
        (job(python="/env/bin/python"), ("/env/bin/python", "train.py")),
        (job(module="mine.train", args=("-x",)), ("python3", "-m", "mine.train", "-x")),
        (job(command=("./run", "a b"), args=("c",), python="/ignored"), ("./run", "a b", "c")),
    ],
)
def test_what_one_rank_runs(wanted: Job, words: tuple[str, ...]) -> None:
    assert command_line(wanted) == words


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({}, ("python3", "train.py", "--epochs", "3")),
        ({"args": ("--serve",)}, ("python3", "train.py", "--serve")),
        ({"args": ()}, ("python3", "train.py")),
        ({"command": ("./serve",)}, ("./serve",)),
        ({"command": ("./serve",), "args": ("-v",)}, ("./serve", "-v")),
    ],
)
def test_what_a_rank_of_a_role_runs(own: dict[str, Any], words: tuple[str, ...]) -> None:
    wanted = job(args=("--epochs", "3"), roles=(replace(role("ps"), **own),))
    assert command_line(wanted, wanted.roles[0]) == words
    assert command_line(wanted) == ("python3", "train.py", "--epochs", "3")


def test_each_group_has_its_own_command_and_variables() -> None:
    server = replace(role("ps"), command=("./serve",), env={"LEVEL": "debug"}, procs=2)
    wanted = job(workers=2, env={"A": "b"}, roles=(server,))
    world = make_world(wanted)
    assert [group.procs for group in world.groups] == [1, 2]
    plan = make_plan(wanted, world, seated("", "", ""), Cluster(nodes=(), known=False))
    assert [launch.argv for launch in plan.launches] == [("python3", "train.py"), ("./serve",)]
    assert [launch.env for launch in plan.launches] == [{}, {"LEVEL": "debug"}]


def test_a_launcher_leads_and_its_end_is_the_runs() -> None:
    world = make_world(job(workers=2, roles=(role("ps"), role("chief"), role("launcher"))))
    assert [(group.role, group.essential) for group in world.groups] == [
        ("launcher", True), ("chief", False), ("worker", False), ("ps", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("workers", "procs", "cpus", "threads"),
    [(1, 1, 8, 8), (2, 1, 8, 4), (2, 2, 8, 2), (3, 1, 8, 2), (4, 4, 8, 1)],
)
def test_ranks_share_the_cpus_of_a_machine(workers: int, procs: int, cpus: float, threads: int) -> None:
    world = World(groups=(Group(workers=workers, procs=procs),))
    assert threads_per_rank(world, seated(*["here"] * workers), nodes(here=cpus)) == [threads]


def test_threads_follow_the_request_where_there_is_one() -> None:
    world = World(
        groups=(
            Group(workers=2, procs=2, resources=Resources(cpus=Amount(request=6, limit=8))),
            Group(role="ps", workers=1, procs=1, resources=Resources(cpus=Amount(request=0.5))),
        )
    )
    assert threads_per_rank(world, seated("here", "here", "here"), nodes(here=64)) == [3, 1]


def test_the_fullest_machine_decides_for_all() -> None:
    world = World(groups=(Group(workers=3, procs=1),))
    assert threads_per_rank(world, seated("a", "a", "b"), nodes(a=8, b=8)) == [4], (
        "equal workers, equal threads"
    )


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=3),
    st.integers(1, 64),
    st.data(),
)
def test_no_machine_gets_more_threads_than_cpus(
    groups: list[tuple[int, int]], cpus: int, data: st.DataObject
) -> None:
    world = World(groups=tuple(Group(workers=workers, procs=procs) for workers, procs in groups))
    where = [data.draw(st.sampled_from(["a", "b"])) for _ in range(worker_count(world))]
    threads = threads_per_rank(world, seated(*where), nodes(a=cpus, b=cpus))
    assert all(count >= 1 for count in threads)
    for name in set(where):
        here = [member for member, seat in zip(members(world), where, strict=True) if seat == name]
        ranks = sum(member.procs for member in here)
        assert sum(member.procs * threads[member.group] for member in here) <= max(cpus, ranks)


def test_a_plan_has_what_is_decided_and_nothing_that_the_job_says() -> None:
    assert not {each.name for each in fields(Plan)} & {each.name for each in fields(Job)}
    wanted = job(framework="torch", workers=2, roles=(role("ps"),))
    cluster = one_node()
    placement = place(make_world(wanted), cluster)
    assert isinstance(placement, Placement)
    plan = make_plan(wanted, make_world(wanted), placement, cluster)
    assert (plan.world, plan.placement) == (make_world(wanted), placement)
    assert len(plan.launches) == len(plan.threads) == len(plan.world.groups) == 2
    assert plan == make_plan(wanted, make_world(wanted), placement, cluster)
