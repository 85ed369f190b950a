"""A place in a snapshot of a cluster, what is left of it, and what is free once runs have ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.model.cluster import Cluster, Gpu, Node
from echelon.model.job import Job
from echelon.model.open_shape import OpenShape
from echelon.model.queue import HoldingRun, Limits, QueuedRun, Rules
from echelon.model.resources import Amount, Resources
from echelon.planning import fit
from echelon.queueing.policy import decide
from echelon.queueing.room import ClusterRoom
from echelon.queueing.rooms import Full, Seated

GIB = 2.0**30


def node(name: str, *holders: str | None, model: str = "A100", **more: Any) -> Node:
    gpus = tuple(
        Gpu(id=f"{name}/{number}", model=model, holder=holder) for number, holder in enumerate(holders)
    )
    about = {"cpus": 8.0, "memory": 32 * GIB, "free_cpus": 8.0, "free_memory": 32 * GIB} | more
    return Node(name=name, gpus=gpus, **about)


def queued(name: str, gpus: int, *, workers: int = 1, waited: float = 0.0, **more: Any) -> QueuedRun:
    needs = Resources(gpus=gpus, gpu_type=more.pop("gpu_type", None), cpus=more.pop("cpus", None))
    job = Job(name=name, script="x.py", framework="plain", workers=workers, resources=needs, **more)
    return QueuedRun(name=f"ns/{name}", job=job, since=-waited, gpus=gpus * workers)


def room(*nodes: Node) -> ClusterRoom:
    cluster = Cluster(nodes=nodes, here=False)
    return ClusterRoom(view=lambda _job: cluster)


def taken(found: Seated[ClusterRoom] | Full) -> ClusterRoom:
    assert isinstance(found, Seated)
    return found.room


def test_what_one_run_takes_another_does_not_get() -> None:
    free = room(node("a", None, None), node("b", None, None))
    rest = taken(free.take(queued("one", 2), None))
    rest = taken(rest.take(queued("two", 2), None))
    assert rest.take(queued("three", 1), None) == Full(
        reason="waiting for 1 GPU: 0 of 4 free, held by ns/one, ns/two"
    )
    assert isinstance(rest.without(["ns/one"]).take(queued("three", 1), None), Seated)
    assert isinstance(free.take(queued("three", 1), None), Seated)  # a Room is a value


def test_cpus_and_memory_are_taken_too() -> None:
    free = room(node("a", None, None))
    need: Any = {"cpus": Amount(request=6.0)}
    rest = taken(free.take(queued("one", 1, **need), None))
    assert isinstance(rest.take(queued("two", 1, **need), None), Full)
    assert isinstance(rest.without(["ns/one"]).take(queued("two", 1, **need), None), Seated)


def test_runs_that_hold_a_node_release_it_when_they_end() -> None:
    full = room(node("a", "ns/old", "ns/old", free_cpus=0.0))
    wants = queued("next", 2, cpus=Amount(request=8.0))
    assert isinstance(full.take(wants, None), Full)
    assert isinstance(full.without(["ns/old"]).take(wants, None), Seated)


def test_what_never_fits_says_so() -> None:
    found = room(node("a", None)).take(queued("huge", 4), None)
    assert isinstance(found, Full)
    assert found.never


def test_a_range_of_sizes_stays_within_a_limit() -> None:
    free = room(node("a", *[None] * 8))
    run = queued("open", 1)
    run = replace(run, job=replace(run.job, shape=OpenShape(least=2, most=8)))
    sizes = []
    for most in (None, 5, 2):
        found = free.take(run, most)
        assert isinstance(found, Seated)
        sizes.append(found.gpus)
    assert sizes == [8, 5, 2]
    assert isinstance(free.take(run, 1), Full)


def test_a_gang_that_waits_for_other_gpus_keeps_nobody_out() -> None:
    """It waits beyond the bound for A100s: what is kept for it is no H100."""
    free = room(node("a", "ns/old", model="A100"), node("h", None, None, model="H100"))
    old = HoldingRun(name="ns/old", gpus=1)
    gang = queued("gang", 1, waited=9999, gpu_type="A100")
    queue = [gang, queued("other", 1, gpu_type="H100"), queued("any", 1)]
    found = decide(queue, [old], free, Rules(limits=Limits()), 0.0)
    assert [(each.run.name, each.why) for each in found.verdicts] == [
        ("ns/gang", "no-room"),
        ("ns/any", "reserved"),
        ("ns/other", "starts"),
    ]


def test_the_plan_that_is_found_is_of_the_snapshot() -> None:
    found = room(node("a", "ns/old", None), node("b", None, None)).take(queued("gang", 1, workers=3), None)
    assert isinstance(found, Seated)
    assert found.plan is not None
    seats = [gpu for seat in found.plan.placement.seats for gpu in seat.gpus]
    assert sorted(seats) == ["a/1", "b/0", "b/1"]


def asks(name: str, gpus: int, *, waited: float = 0.0) -> QueuedRun:
    """A run that says only how many GPUs it needs."""
    run = queued(name, 0, waited=waited)
    return replace(run, gpus=gpus, job=replace(run.job, shape=OpenShape(least=gpus, most=gpus)))


def test_what_one_node_could_hold_is_split_only_once_it_may_not_be_overtaken() -> None:
    """Two nodes with 2 free GPUs each, and both could hold 4."""
    free = room(node("a", None, None, "x/old", "x/old"), node("b", None, None, "x/old", "x/old"))
    rules = Rules(overtake=600.0)
    young, aged = asks("young", 4, waited=599), asks("aged", 4, waited=600)
    (found,) = decide([young], [], free, rules, 0.0).verdicts
    assert (found.why, found.reason) == (
        "one-node",
        "waiting for 4 GPUs on one node; 600 s after its submission several will do",
    )
    (found,) = decide([aged], [], free, rules, 0.0).verdicts
    assert found.plan is not None
    assert [seat.node for seat in found.plan.placement.seats] == ["a", "b"]
    (found,) = decide([young], [], free, replace(rules, strict=True), 0.0).verdicts
    assert found.why == "starts", "it would keep all others waiting"
    (found,) = decide(
        [asks("large", 4)], [], room(node("a", *[None] * 3), node("b", *[None] * 3)), rules, 0.0
    ).verdicts
    assert found.why == "starts", "no node could hold it"


def test_equal_runs_are_looked_at_once_for_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 runs in 4 sizes two start: a decision takes as many looks for a place as there are sizes."""
    looks = []

    def counted(*args: Any, **more: Any) -> Any:
        looks.append(1)
        return fit(*args, **more)

    monkeypatch.setattr("echelon.queueing.room.fit", counted)
    free = room(*(node(f"n{at}", *["x/old"] * 7, None) for at in range(4)))
    queue = [
        queued(f"r{at}", 1 + at % 4, workers=2, waited=9999 - at, timeout=10.0 + at) for at in range(200)
    ]
    old = HoldingRun(name="x/old", gpus=28, ends=50.0)
    found = decide(queue, [old], free, Rules(), 0.0)
    assert sum(each.why == "starts" for each in found.verdicts) == 2
    assert len(looks) < 30


@given(
    st.lists(st.one_of(st.tuples(st.integers(1, 3), st.integers(1, 3)), st.integers(0, 5)), max_size=8),
    st.sets(st.integers(0, 8)),
)
def test_nodes_that_are_kept_up_are_those_that_are_made_anew(
    steps: list[tuple[int, int] | int], asked: set[int]
) -> None:
    """Whatever was taken and released, and whenever it was looked at: a Room is as if made at once."""
    nodes = [node("a", "0", None, "1", None), node("b", "0", None, None), node("c", "2", None, None, None)]
    now, probe = room(*nodes), queued("probe", 1)
    for at, step in enumerate(steps):
        if at in asked:
            now._now(probe)
        if isinstance(step, int):
            now = now.without([str(step), f"ns/{step}"])
        else:
            gpus, workers = step
            found = now.take(queued(str(at), gpus, workers=workers, cpus=Amount(request=1.0)), None)
            now = found.room if isinstance(found, Seated) else now
    anew = ClusterRoom(view=now.view, taken=now.taken, gone=now.gone)
    kept, made = now._now(probe), anew._now(probe)
    assert kept.cluster == made.cluster
    assert {free: count for free, count in kept.free.items() if count} == made.free
