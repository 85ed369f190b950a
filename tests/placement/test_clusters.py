"""Placement where the cluster is more than one machine: unknown, partly closed, or shared with others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster, Gpu, LeftOut, Node, matches_type
from echelon.model.plan import Placement
from echelon.model.resources import Amount, Resources
from echelon.model.world import Group, World
from echelon.placement import NoRoom, place

GIB = 2**30


def node(name: str, gpus: int = 0, *, held: int = 0, model: str = "A100", **more: Any) -> Node:
    devices = tuple(
        Gpu(id=f"{name}/{n}", model=model, holder=f"run-{n}" if n < held else None) for n in range(gpus)
    )
    return Node(name=name, cpus=8, memory=64 * GIB, free_cpus=8, free_memory=64 * GIB, gpus=devices, **more)


def world(workers: int = 1, **need: Any) -> World:
    return World(groups=(Group(workers=workers, procs=1, resources=Resources(**need)),))


def cluster(*nodes: Node, left_out: tuple[LeftOut, ...] = (), **more: Any) -> Cluster:
    return Cluster(nodes=nodes, left_out=left_out, here=False, **more)


def shut(each: Node, why: str, *, passing: bool) -> LeftOut:
    return LeftOut(node=each, why=why, passing=passing)


@given(st.integers(1, 50), st.integers(0, 100), st.none() | st.just("H100"))
def test_what_may_not_be_looked_at_takes_everybody(workers: int, gpus: int, kind: str | None) -> None:
    """Whatever is asked for: every worker has a seat, nobody has a node, and nothing is refused."""
    need = Resources(gpus=gpus, gpu_type=kind, cpus=Amount(request=10**6), other={"rdma": 3})
    wanted = World(
        groups=(
            Group(workers=workers, procs=1, resources=need),
            Group(role="ps", workers=1, procs=1, resources=Resources()),
        )
    )
    placed = place(wanted, Cluster(nodes=(), known=False))
    assert isinstance(placed, Placement)
    assert [(seat.worker, seat.node, seat.gpus) for seat in placed.seats] == [
        (number, "", ()) for number in range(workers + 1)
    ]


def test_a_node_that_will_be_back_is_waited_for() -> None:
    away = shut(node("big", 8), "cordoned", passing=True)
    outcome = place(world(gpus=8), cluster(node("small", 4), left_out=(away,)))
    assert outcome == NoRoom(reason="waiting for 8 GPUs: 4 of 4 free; left out: big (cordoned)")


def test_a_node_that_will_not_take_it_is_named_with_what_would_help() -> None:
    infra = shut(node("big", 8), "taint dedicated=infra:NoSchedule; --toleration dedicated", passing=False)
    master = shut(node("master"), "taint control-plane:NoSchedule", passing=False)
    with pytest.raises(Unplaceable) as caught:
        place(world(gpus=8), cluster(node("small", 4), left_out=(infra, master)))
    assert caught.value.message == "8 GPUs asked for, the only node has 4"
    assert "left out: big (taint dedicated=infra:NoSchedule; --toleration dedicated)" in caught.value.hint
    assert "master" not in caught.value.hint  # it has no GPUs to offer
    with pytest.raises(Unplaceable, match=r"left out: big .*, master"):
        place(world(cpus=Amount(request=9)), cluster(node("small", 4), left_out=(infra, master)))


def test_a_cluster_without_a_node_for_workers() -> None:
    with pytest.raises(Unplaceable, match=r"no node takes workers.*left out: a \(runs windows\)"):
        place(world(), cluster(left_out=(shut(node("a"), "runs windows", passing=False),)))
    with pytest.raises(Unplaceable, match="the cluster has no nodes"):
        place(world(), cluster())
    waits = place(world(), cluster(left_out=(shut(node("a"), "not ready", passing=True),)))
    assert waits == NoRoom(reason="waiting until one node has room for a worker; left out: a (not ready)")


def test_more_per_worker_than_any_node_has() -> None:
    with pytest.raises(Unplaceable, match="8 GPUs per worker asked for, no node has more than 4"):
        place(world(gpus=8), cluster(node("a", 4), node("b", 4)))
    with pytest.raises(Unplaceable, match="3 GPUs per worker asked for, no node has more than 2"):
        place(
            world(gpus=3, gpu_type="H100"), cluster(node("a", 4), *(node(n, 2, model="H100") for n in "bc"))
        )


def test_holders_and_nodes_are_named_as_far_as_a_sentence_bears_it() -> None:
    crowd = [node(f"n{number:04}", 8, held=8) for number in range(1000)]
    outcome = place(world(gpus=1), cluster(*crowd))
    assert isinstance(outcome, NoRoom)
    assert outcome.reason == (
        "waiting for 1 GPU: 0 of 8000 free, held by run-0, run-1, run-2, run-3 and 4 more"
    )
    away = tuple(shut(each, "cordoned", passing=True) for each in crowd)
    outcome = place(world(gpus=1), cluster(node("one", 1, held=1), left_out=away))
    assert isinstance(outcome, NoRoom)
    assert outcome.reason.endswith("left out: n0000, n0001, n0002, n0003 and 996 more (cordoned)")


def test_other_resources_that_somebody_holds() -> None:
    taken = node("a", other={"mig": 2}, free_other={"mig": 1})
    assert isinstance(place(world(other={"mig": 1}), cluster(taken)), Placement)
    assert isinstance(place(world(workers=2, other={"mig": 1}), cluster(taken)), NoRoom)
    with pytest.raises(Unplaceable):
        place(world(workers=3, other={"mig": 1}), cluster(taken))


@pytest.mark.parametrize(
    ("wanted", "model", "fits"),
    [
        ("a100", "NVIDIA-A100-SXM4-80GB", True),
        ("NVIDIA A100", "NVIDIA-A100-SXM4-80GB", True),
        ("A100_SXM4", "NVIDIA A100-SXM4-80GB", True),
        ("H100", "NVIDIA-A100-SXM4-80GB", False),
        ("a10", "NVIDIA-A100-SXM4-80GB", True),  # a part is enough, here as on one machine
        ("a100", "", False),
    ],
)
def test_types_of_gpus(wanted: str, model: str, fits: bool) -> None:
    assert matches_type(wanted, model) is fits
