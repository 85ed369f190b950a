"""The shape of a run on the nodes of a snapshot: what a short way finds is what the long one does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.open_shape import OpenShape, Shares
from echelon.model.resources import Resources
from echelon.placement.open import choose_shape
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
