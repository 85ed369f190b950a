"""A place in a snapshot of a cluster, what is left of it, and what is free once runs have ended."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.job import Job
from echelon.model.queue import QueuedRun
from echelon.model.resources import Amount, Resources
from echelon.queueing.policy import Full, Seated
from echelon.queueing.room import ClusterRoom

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
    rest = taken(free.take(queued("one", 2)))
    rest = taken(rest.take(queued("two", 2)))
    assert rest.take(queued("three", 1)) == Full(
        reason="waiting for 1 GPU: 0 of 4 free, held by ns/one, ns/two"
    )
    assert isinstance(rest.without(["ns/one"]).take(queued("three", 1)), Seated)
    assert isinstance(free.take(queued("three", 1)), Seated)  # a Room is a value


def test_cpus_and_memory_are_taken_too() -> None:
    free = room(node("a", None, None))
    need: Any = {"cpus": Amount(request=6.0)}
    rest = taken(free.take(queued("one", 1, **need)))
    assert isinstance(rest.take(queued("two", 1, **need)), Full)
    assert isinstance(rest.without(["ns/one"]).take(queued("two", 1, **need)), Seated)


def test_runs_that_hold_a_node_release_it_when_they_end() -> None:
    full = room(node("a", "ns/old", "ns/old", free_cpus=0.0))
    wants = queued("next", 2, cpus=Amount(request=8.0))
    assert isinstance(full.take(wants), Full)
    assert isinstance(full.without(["ns/old"]).take(wants), Seated)


def test_what_never_fits_says_so() -> None:
    found = room(node("a", None)).take(queued("huge", 4))
    assert isinstance(found, Full)
    assert found.never


def test_the_gpus_that_are_given_are_those_of_the_snapshot() -> None:
    found = room(node("a", "ns/old", None), node("b", None, None)).take(queued("gang", 1, workers=3))
    given = [gpu for there in taken(found).taken.values() for each in there for gpu in each.gpus]
    assert sorted(given) == ["a/1", "b/0", "b/1"]


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
            found = now.take(queued(str(at), gpus, workers=workers, cpus=Amount(request=1.0)))
            now = found.room if isinstance(found, Seated) else now
    anew = ClusterRoom(view=now.view, taken=now.taken, gone=now.gone)
    kept, made = now._now(probe), anew._now(probe)
    assert kept.cluster == made.cluster
    assert {free: count for free, count in kept.free.items() if count} == made.free
