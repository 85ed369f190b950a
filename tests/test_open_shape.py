"""`--total-gpus`: how many workers share the GPUs, and where, is decided for the user."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from echelon.errors import InvalidJob, Unplaceable
from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.meaning import to_job
from echelon.model.plan import Placement, Plan
from echelon.model.resources import Amount, Resources
from echelon.model.settings import Settings
from echelon.model.world import World
from echelon.placement import place
from echelon.planning import candidates, fit


def gpu_nodes(*free: int, model: str = "", of: int = 8) -> Cluster:
    return Cluster(
        nodes=tuple(
            Node(
                name=f"n{at}",
                cpus=64,
                memory=2**38,
                free_cpus=64,
                free_memory=2**38,
                gpus=tuple(
                    Gpu(id=f"n{at}/{number}", model=model, holder=None if number < have else "other")
                    for number in range(of)
                ),
            )
            for at, have in enumerate(free)
        ),
        here=False,
    )


def shape_of(cluster: Cluster, **settings: Any) -> tuple[list[tuple[str, int]], World]:
    wanted = to_job(Settings(script="train.py", framework="torch", **settings), name="x")
    (candidate,) = candidates(wanted, cluster)
    found = place(candidate.world, cluster, candidate.nodes)
    assert isinstance(found, Placement), found
    return [(seat.node, len(seat.gpus)) for seat in found.seats], candidate.world


def test_six_gpus_of_five_three_and_two_are_two_equal_workers() -> None:
    seats, world = shape_of(gpu_nodes(5, 3, 2), total_gpus=6)
    assert seats == [("n0", 3), ("n1", 3)]
    assert [(group.workers, group.procs, group.resources.gpus) for group in world.groups] == [(2, 3, 3)]


def test_unequal_shares_are_groups_of_their_own() -> None:
    seats, world = shape_of(gpu_nodes(5, 3, 2), total_gpus=6, shares="largest-first")
    assert seats == [("n0", 5), ("n1", 1)]
    assert [(group.workers, group.procs) for group in world.groups] == [(1, 5), (1, 1)]


def test_ten_of_five_three_and_two_are_refused_with_what_fits() -> None:
    wanted = to_job(Settings(script="train.py", total_gpus=10), name="x")
    with pytest.raises(Unplaceable) as error:
        candidates(wanted, gpu_nodes_in_all(5, 3, 2))
    assert error.value.hint == "--shares any or --total-gpus 6"
    seats, _ = shape_of(gpu_nodes_in_all(5, 3, 2), total_gpus="10", shares="any")
    assert [share for _, share in seats] == [5, 3, 2]


def test_eleven_of_ten_are_refused_with_the_reason() -> None:
    wanted = to_job(Settings(script="train.py", total_gpus=11, shares="any"), name="x")
    with pytest.raises(Unplaceable, match="11 GPUs asked for, the 3 nodes have 10 that one run could use"):
        candidates(wanted, gpu_nodes_in_all(5, 3, 2))


def gpu_nodes_in_all(*sizes: int) -> Cluster:
    there = gpu_nodes(*sizes)
    return replace(
        there, nodes=tuple(replace(n, gpus=n.gpus[:s]) for n, s in zip(there.nodes, sizes, strict=True))
    )


def test_cpus_and_memory_for_each_gpu() -> None:
    seats, world = shape_of(gpu_nodes(8, 8), total_gpus=6, cpus="20/gpu", memory="16Gi/gpu")
    assert seats == [("n0", 3), ("n1", 3)], "64 cores are enough for three GPUs with 20 each"
    assert world.groups[0].resources.cpus == Amount(request=60)
    assert world.groups[0].resources.memory == Amount(request=48 * 2**30)


@pytest.mark.parametrize(
    ("free", "settings", "seats"),
    [
        ((5, 3, 2), {"total_gpus": "4..12", "gpus": 2}, [("n0", 2), ("n0", 2)]),
        ((5, 3, 2), {"total_gpus": "6..12", "gpus": 2}, [("n0", 2), ("n0", 2), ("n1", 2), ("n2", 2)]),
        ((5, 3, 2), {"total_gpus": "4..12", "workers": 2}, [("n0", 2), ("n0", 2)]),
        ((5, 3, 2), {"total_gpus": "5..12", "workers": 2}, [("n0", 3), ("n1", 3)]),
        ((1, 1, 0), {"total_gpus": "4..12", "gpus": 2}, "waiting for 8 GPUs"),  # the most that one node has
    ],
)
def test_a_range_with_workers_of_a_size_takes_as_many_as_have_the_narrowest_span(
    free: tuple[int, ...], settings: dict[str, Any], seats: object
) -> None:
    there = gpu_nodes(*free)
    wanted = to_job(Settings(script="train.py", framework="torch", **settings), name="x")
    (candidate,) = candidates(wanted, there)
    found = place(candidate.world, there)
    if isinstance(found, Placement):
        assert [(seat.node, len(seat.gpus)) for seat in found.seats] == seats
    else:
        assert found.reason.startswith(str(seats))


def test_a_range_of_a_run_with_roles_tries_every_number() -> None:
    """The workers fit on one node, but then the parameter server does not; with fewer workers all fit."""
    there = replace(gpu_nodes(8), nodes=(replace(gpu_nodes(8).nodes[0], free_cpus=4.0),))
    wanted = to_job(
        Settings(
            script="t.py",
            framework="tensorflow",
            total_gpus="2..4",
            gpus=1,
            cpus="1",
            procs=1,
            roles={"ps": 1, "chief": 1},
        ),
        name="x",
    )
    assert [each.world.groups[1].workers for each in candidates(wanted, there)] == [4, 3, 2]
    found = fit(wanted, there)
    assert isinstance(found, Plan)
    assert found.world.groups[1].workers == 2


def test_one_model_is_chosen_and_asked_for() -> None:
    there = gpu_nodes(4, 4, model="NVIDIA-A100")
    other = replace(gpu_nodes(7, model="Tesla-T4").nodes[0], name="t")
    seats, world = shape_of(replace(there, nodes=(*there.nodes, other)), total_gpus=8)
    assert seats == [("n0", 4), ("n1", 4)]
    assert world.groups[0].resources.gpu_type == "NVIDIA-A100"


def test_roles_without_gpus_sit_where_there_is_room() -> None:
    cluster = gpu_nodes(2, 2)
    wanted = to_job(
        Settings(script="t.py", framework="tensorflow", total_gpus=4, roles={"ps": 1, "chief": 1}, procs=1),
        name="x",
    )
    wanted = replace(wanted, roles=tuple(replace(each, resources=Resources()) for each in wanted.roles))
    (candidate,) = candidates(wanted, cluster)
    found = place(candidate.world, cluster, candidate.nodes)
    assert isinstance(found, Placement)
    assert [len(seat.gpus) for seat in found.seats] == [0, 2, 2, 0]
    assert [seat.worker for seat in found.seats] == [0, 1, 2, 3]


def test_without_a_look_at_the_nodes_no_shape_is_chosen() -> None:
    wanted = to_job(Settings(script="train.py", total_gpus=2), name="x")
    with pytest.raises(Unplaceable, match="you may not list nodes"):
        candidates(wanted, Cluster(nodes=(), known=False))


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"total_gpus": "0"}, "total_gpus"),
        ({"total_gpus": "8..4"}, "total_gpus"),
        ({"total_gpus": "six"}, "total_gpus"),
        ({"total_gpus": 7, "gpus": 2}, "total_gpus"),
        ({"shares": "any"}, "shares"),
        ({"total_gpus": 4, "gpus": 2, "shares": "any"}, "shares"),
        ({"total_gpus": 4, "cpus": 8}, "cpus"),
        ({"memory": "1Gi/gpu"}, "memory"),
        ({"gpus": 2, "cpus": "4/gpu"}, "cpus"),
    ],
)
def test_what_cannot_be_meant_is_refused(said: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidJob) as error:
        to_job(Settings(script="train.py", **said), name="x")
    assert error.value.field == field
