"""The dry run's drawing of a placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.test_open_shape import gpu_nodes

from echelon.model.meaning import to_job
from echelon.model.plan import Placement
from echelon.model.settings import Settings
from echelon.placement import place
from echelon.placement.drawing import draw
from echelon.planning import candidates, make_plan


def drawn(*free: int, domains: tuple[str, ...] = (), **said: Any) -> list[str]:
    job = to_job(Settings(script="train.py", framework="torch", **said), name="x")
    there = gpu_nodes(*free)
    there = replace(there, nodes=tuple(replace(node, domains=domains) for node in there.nodes))
    candidate = candidates(job, there)[0]
    found = place(candidate.world, there, candidate.nodes)
    assert isinstance(found, Placement)
    return draw(job, make_plan(job, candidate.world, found, there), there)


def test_six_of_five_three_and_two() -> None:
    *table, why, other = drawn(5, 3, 2, total_gpus=6)
    assert table == [
        "  node  free  takes  left         workers",
        "  n0    5     3      2     ###..  0",
        "  n1    3     3      0     ###    1",
        "  n2    2            2     ..",
    ]
    assert why.startswith(
        "  why: 6 GPUs as [3, 3] within the cluster: no node has 6 free (at most 5); 2 nodes"
    )
    assert other == (
        "  not [5, 1]: its shares differ (--shares allows that), and it leaves no more GPUs together"
    )


def test_shares_that_differ_say_why_they_are_not_equal() -> None:
    assert drawn(5, 3, 2, total_gpus=6, shares="any")[-2:] == [
        "  why: 6 GPUs as [5, 1] within the cluster: no node has 6 free (at most 5); 2 nodes are the fewest",
        "  not [3, 3]: it leaves no more GPUs together, and has fewer of its own on one node",
    ]
    assert drawn(5, 3, 2, total_gpus=10, shares="any")[1:] == [
        "  n0    5     5      0     #####  0",
        "  n1    3     3      0     ###    1",
        "  n2    2     2      0     ##     2",
        (
            "  why: 10 GPUs as [5, 3, 2] within the cluster: no node has 10 free (at most 5);"
            " 3 nodes are the fewest"
        ),
        "  not in equal shares: 10 GPUs cannot be divided so over these nodes",
    ]
    assert drawn(5, 3, 2, total_gpus=6, shares="largest-first")[-1] == (
        "  as --shares largest-first says, the node with the most free GPUs is filled, then the next"
    )


def test_one_node_is_never_split() -> None:
    assert drawn(5, 3, 2, total_gpus=2)[-1] == "  why: 2 GPUs as [2] within one node, which is never split"


def test_the_part_of_the_network_is_named() -> None:
    assert "within one rack:" in drawn(5, 3, 2, domains=("z", "b", "r"), total_gpus=6)[4]


def test_a_shape_that_was_given_needs_no_reason() -> None:
    assert drawn(4, 4, workers=2, gpus=4)[1:] == [
        "  n0    4     4      0     ####  0",
        "  n1    4     4      0     ####  1",
    ]
    assert drawn(4, workers=2) == []


def test_of_many_nodes_those_that_give_are_drawn() -> None:
    lines = drawn(*[1] * 40, total_gpus=20)
    assert sum("#" in line for line in lines) == 20
    assert "  and 20 nodes more, of which it takes nothing" in lines
