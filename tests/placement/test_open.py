"""The shape of a run on the nodes of a snapshot: what a short way finds is what the long one does."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.open_shape import OpenShape, Shares
from echelon.model.plan import Placement
from echelon.model.resources import Amount, Resources
from echelon.model.world import Group, World
from echelon.placement import place
from echelon.placement.open import choose_now, choose_shape, worker_resources
from echelon.placement.shares import Chosen, Site, Wish, choose, index

NEED = Resources(gpus=0)
NODES = st.lists(
    st.lists(st.tuples(st.sampled_from(["A100", "H100"]), st.booleans()), max_size=5), min_size=1, max_size=4
)


def cluster(nodes: list[list[tuple[str, bool]]]) -> Cluster:
    return Cluster(
        nodes=tuple(
            Node(
                name=f"n{at}",
                gpus=tuple(
                    Gpu(id=f"n{at}/{number}", model=model, holder=None if free else "x/old")
                    for number, (model, free) in enumerate(gpus)
                ),
                cpus=8.0,
                memory=2.0**35,
                free_cpus=8.0,
                free_memory=2.0**35,
            )
            for at, gpus in enumerate(nodes)
        ),
        here=False,
    )


def sites(there: Cluster, *, free: bool) -> list[Site]:
    found = []
    for node in there.nodes:
        models = [gpu.model for gpu in node.gpus if gpu.holder is None or not free]
        found += [
            Site(name=node.name, free=models.count(model), usable=models.count(model), model=model)
            for model in dict.fromkeys(models)
        ]
    return found


@given(NODES, st.integers(1, 8), st.integers(0, 4), st.sampled_from(["equal", "any", "largest-first"]))
def test_what_is_free_now_comes_before_an_empty_cluster(
    nodes: list[list[tuple[str, bool]]], least: int, more: int, shares: Shares
) -> None:
    there = cluster(nodes)
    empty = sites(there, free=False)
    wish = Wish(least=least, most=least + more, shares=shares)
    expected = choose(index(sites(there, free=True)), wish) or choose(index(empty), wish)
    found: Chosen | None
    try:
        shape = OpenShape(least=least, most=least + more, shares=shares)
        found = choose_shape(shape, NEED, there)
    except Unplaceable:
        found = None
    assert found == expected


GIB = 2**30
AMOUNTS = st.sampled_from([0.0, 0.05, 0.1, 0.3, 1.0, 2.9999999, 3.0, 4.0])
BYTES = st.sampled_from([0, GIB // 16, GIB // 8, 3 * GIB - 1, 3 * GIB, 3 * GIB + 1, 8 * GIB])


@given(
    st.lists(st.tuples(st.integers(0, 4), AMOUNTS, BYTES), min_size=1, max_size=4),
    st.integers(1, 8),
    st.sampled_from([None, 0.1, 1.0]),
    st.sampled_from([None, GIB, GIB // 8]),
    st.sampled_from(["equal", "any", "largest-first"]),
)
@example([(2, 0.05, 8 * GIB), (1, 4.0, 8 * GIB), (1, 4.0, 8 * GIB)], 2, None, None, "equal")
@example([(3, 4.0, 3 * GIB - 1)], 3, None, GIB, "equal")
def test_what_is_chosen_has_room_on_its_nodes(
    nodes: list[tuple[int, float, int]],
    number: int,
    cpus: float | None,
    memory: float | None,
    shares: Shares,
) -> None:
    """A worker that says nothing of CPUs and memory asks for a little of both in a pod: a choice that forgets
    it waits for ever, though other nodes have room.
    """
    need = Resources(cpus=Amount(request=0.1), memory=Amount(request=GIB / 8))
    there = Cluster(
        nodes=tuple(
            Node(
                name=f"n{at}",
                gpus=tuple(Gpu(id=f"n{at}/{each}") for each in range(gpus)),
                cpus=8.0,
                memory=16 * GIB,
                free_cpus=free_cpus,
                free_memory=free_memory,
            )
            for at, (gpus, free_cpus, free_memory) in enumerate(nodes)
        ),
        here=False,
    )
    shape = OpenShape(least=number, most=number, shares=shares, cpus_per_gpu=cpus, memory_per_gpu=memory)
    chosen = choose_now(shape, need, there)
    if chosen is None:
        return
    world = World(
        groups=tuple(
            Group(workers=1, procs=1, resources=worker_resources(shape, need, share))
            for _, share in chosen.shares
        )
    )
    assert isinstance(place(world, there, [node for node, _ in chosen.shares]), Placement)
