"""The dry run's drawing of a placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.test_open_shape import gpu_nodes

from echelon.model.engine.cluster import Cluster
from echelon.model.meaning import to_job
from echelon.model.plan import Placement, Plan
from echelon.model.settings import Settings
from echelon.placement import place
from echelon.placement.drawing import draw, why_not_more
from echelon.planning import candidates, fit, make_plan


def drawn(*free: int, domains: tuple[str, ...] = (), **said: Any) -> list[str]:
    there = gpu_nodes(*free)
    there = replace(there, nodes=tuple(replace(node, domains=domains) for node in there.nodes))
    return drawn_on(there, **said)


def drawn_on(there: Cluster, **said: Any) -> list[str]:
    job = to_job(Settings(script="train.py", framework="torch", **said), name="x")
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
        "  as --shares largest-first says, of the nodes within the cluster the one that can give the most"
        " GPUs is filled, then the next"
    )


def test_what_is_said_of_largest_first_is_what_is_chosen() -> None:
    """Over two models, and with a node whose GPUs its CPUs do not suffice for."""
    there = gpu_nodes(5, 5, model="A100")
    others = [
        replace(each, name=f"t{at}") for at, each in enumerate(gpu_nodes(7, 3, 4, model="Tesla-T4").nodes)
    ]
    there = replace(there, nodes=(*there.nodes, replace(others[0], free_cpus=2.0), *others[1:]))
    lines = drawn_on(there, total_gpus=7, shares="largest-first", cpus="1/gpu")
    assert [line.split()[:3] for line in lines if "#" in line] == [["n0", "5", "5"], ["n1", "5", "2"]]
    assert lines[-2:] == [
        "  why: 7 GPUs as [5, 2] within the cluster: no node can give 7 (at most 5); 2 nodes are the fewest",
        (
            "  as --shares largest-first says, of the nodes of A100 within the cluster the one that can give"
            " the most GPUs is filled, then the next"
        ),
    ]


@pytest.mark.parametrize(
    ("free", "said", "why"),
    [
        ((5, 3, 2), {"total_gpus": "4..5"}, ""),
        (
            (5, 3, 2),
            {"total_gpus": "4..6"},
            "5 GPUs of 4 to 6: 6, as [3, 3], would be spread over the cluster; these are within one node",
        ),
        (
            (5, 3, 2),
            {"total_gpus": "4..8"},
            (
                "5 GPUs of 4 to 8: no more than 6 can be had now in equal shares;"
                " 6, as [3, 3], would be spread over the cluster; these are within one node"
            ),
        ),
        ((5, 0), {"total_gpus": "4..8"}, "5 GPUs of 4 to 8: no more than 5 can be had now in equal shares"),
        ((5, 1), {"total_gpus": "6..8", "shares": "any"}, "6 GPUs of 6 to 8: no more than 6 can be had now"),
        (
            (5, 4),
            {"total_gpus": "4..8", "gpus": 2},
            "4 GPUs of 4 to 8: 8 would be spread over more of the network",
        ),
        (
            (5, 0),
            {"total_gpus": "4..8", "workers": 2},
            "4 GPUs of 4 to 8: 8 are not free now for such workers",
        ),
        ((8, 8), {"total_gpus": "4..9", "gpus": 2}, ""),  # nine is no multiple of two
    ],
)
def test_a_range_that_gives_less_than_the_most_says_why(
    free: tuple[int, ...], said: dict[str, Any], why: str
) -> None:
    job = to_job(Settings(script="train.py", framework="torch", **said), name="x")
    there = gpu_nodes(*free)
    plan = fit(job, there)
    assert isinstance(plan, Plan)
    assert why_not_more(job, plan, there) == why


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
