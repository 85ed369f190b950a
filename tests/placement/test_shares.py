"""The shape of a run that says only how many GPUs it needs: compared with trying everything."""

from __future__ import annotations

from itertools import combinations, product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from echelon.model.open_shape import Shares
from echelon.placement.shares import Chosen, Index, Site, Wish, choose, index, sizes_that_fit


def sites(*free: int, model: str = "") -> list[Site]:
    return [Site(name=f"n{at}", free=number, usable=number, model=model) for at, number in enumerate(free)]


def best(there: Index, least: int, most: int = 0, shares: Shares = "equal") -> Chosen:
    found = choose(there, Wish(least=least, most=most or least, shares=shares))
    assert found is not None
    return found


def shares_of(found: Chosen) -> list[int]:
    return [share for _, share in found.shares]


def test_six_of_five_three_and_two() -> None:
    there = index(sites(5, 3, 2))
    assert best(there, 6).shares == (("n0", 3), ("n1", 3))
    assert best(there, 6, shares="largest-first").shares == (("n0", 5), ("n1", 1))
    assert len(best(there, 6, shares="any").shares) == 2


def test_ten_of_five_three_and_two_needs_unequal_shares() -> None:
    there = index(sites(5, 3, 2))
    assert choose(there, Wish(least=10, most=10)) is None
    assert sizes_that_fit(there, 10, "equal") == [1, 2, 3, 4, 5, 6]
    assert shares_of(best(there, 10, shares="any")) == [5, 3, 2]
    assert choose(there, Wish(least=11, most=11, shares="any")) is None


def test_what_fits_one_node_is_never_split_and_takes_the_fullest() -> None:
    found = best(index(sites(8, 4, 6, 4)), 4)
    assert found.shares == (("n1", 4),)
    assert found.span == 0


def test_the_narrowest_part_of_the_network_comes_before_fewer_nodes() -> None:
    nodes = [
        *(Site(name=f"a{at}", free=2, usable=2, domains=("z", "rack-a")) for at in range(4)),
        *(Site(name=f"b{at}", free=4, usable=4, domains=("z", f"rack-b{at}")) for at in range(2)),
    ]
    found = best(index(nodes), 8)
    assert shares_of(found) == [2, 2, 2, 2]
    assert found.domain == ("z", "rack-a")


def test_models_are_not_mixed() -> None:
    nodes = [*sites(4, 4, model="A100"), Site(name="x", free=7, usable=7, model="T4")]
    assert best(index(nodes), 8, shares="any").model == "A100"
    assert choose(index(nodes), Wish(least=9, most=9, shares="any")) is None


def test_a_node_of_unknown_place_is_in_no_rack() -> None:
    nodes = [Site(name=f"n{at}", free=2, usable=2, domains=("z", "")) for at in range(2)]
    found = best(index(nodes), 4)
    assert found.domain == ("z",)


def test_of_a_range_the_largest_number_with_the_narrowest_span() -> None:
    assert shares_of(best(index(sites(4, 6, 2)), 4, 8)) == [6]
    assert shares_of(best(index(sites(2, 2, 2)), 3, 8)) == [2, 2, 2]


def test_cpus_and_memory_limit_a_share() -> None:
    nodes = [Site(name="small", free=8, usable=2), Site(name="big", free=6, usable=6)]
    assert best(index(nodes), 6).shares == (("big", 6),)
    assert best(index(nodes), 8, shares="any").shares == (("big", 6), ("small", 2))


SIZES = {1: 5, 2: 3, 4: 2, 8: 1}


def added(nodes: list[Site], amounts: tuple[int, ...]) -> int:
    def fragments(free: int) -> int:
        return free * sum(weight for size, weight in SIZES.items() if size > free)

    return sum(
        fragments(node.free - x) - fragments(node.free) for node, x in zip(nodes, amounts, strict=True)
    )


def by_trying_everything(nodes: list[Site], number: int, shares: str) -> tuple[Any, ...] | None:
    """The key of the best shape: span, nodes, fragmentation, rank of shares, free GPUs, part."""
    best = None
    depth = max((len(node.domains) for node in nodes), default=0)
    parts: list[tuple[int, list[Site]]] = [(0, [node]) for node in nodes]
    for span, length in enumerate(range(depth, -1, -1), start=1):
        names = {node.domains[:length] for node in nodes if length == 0 or node.domains[length - 1]}
        for name in names:
            there = [node for node in nodes if node.domains[:length] == name]
            parts += [(span, [n for n in there if n.model == model]) for model in {n.model for n in there}]
    for span, there in parts:
        for count in range(1, len(there) + 1):
            for taken in combinations(there, count):
                for amounts in product(*(range(1, node.usable + 1) for node in taken)):
                    if sum(amounts) != number or (shares == "equal" and len(set(amounts)) > 1):
                        continue
                    rank = tuple(-x for x in sorted(amounts, reverse=True)) if shares == "any" else ()
                    domain = there[0].domains[: depth + 1 - span] if span else ()
                    free = sum(node.free for node in there)
                    key = (span, count, added(list(taken), amounts), rank, free, domain)
                    best = key if best is None or key < best else best
    return best


@st.composite
def clusters(draw: st.DrawFn) -> list[Site]:
    count = draw(st.integers(1, 5))
    depth = draw(st.integers(0, 2))
    nodes = []
    for at in range(count):
        free = draw(st.integers(0, 5))
        usable = draw(st.one_of(st.just(free), st.integers(0, free)))
        domains = tuple(draw(st.sampled_from(["a", "b", ""])) for _ in range(depth))
        nodes.append(
            Site(name=f"n{at}", free=free, usable=usable, model=draw(st.sampled_from("MMN")), domains=domains)
        )
    return nodes


@pytest.mark.parametrize("shares", ["equal", "any"])
@settings(max_examples=examples(400), deadline=None)
@given(nodes=clusters(), number=st.integers(1, 12))
def test_nothing_better_exists(shares: Shares, nodes: list[Site], number: int) -> None:
    check_best(shares, nodes, number)


def check_best(shares: Shares, nodes: list[Site], number: int) -> None:
    """What is chosen is as good as the best of all ways."""
    found = choose(index(nodes), Wish(least=number, most=number, shares=shares), SIZES)
    known = by_trying_everything([node for node in nodes if node.usable], number, shares)
    if found is None:
        assert known is None
        return
    assert known is not None
    by_name = {node.name: node for node in nodes}
    amounts = [share for _, share in found.shares]
    chosen = [by_name[name] for name, _ in found.shares]
    assert sum(amounts) == number
    assert len({node.name for node in chosen}) == len(chosen)
    assert len({node.model for node in chosen}) == 1
    assert all(1 <= share <= node.usable for share, node in zip(amounts, chosen, strict=True))
    rank = tuple(-x for x in sorted(amounts, reverse=True)) if shares == "any" else ()
    assert (found.span, len(chosen), found.added, rank) == known[:4]
    assert found.added == added(chosen, tuple(amounts))
    if found.span:
        assert all(node.domains[: len(found.domain)] == found.domain for node in chosen)
        assert found.domain == known[5]


@settings(max_examples=examples(200), deadline=None)
@given(nodes=clusters(), number=st.integers(1, 12), order=st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(nodes: list[Site], number: int, order: Random) -> None:
    shuffled = list(nodes)
    order.shuffle(shuffled)
    all_shares: tuple[Shares, ...] = ("equal", "any", "largest-first")
    for shares in all_shares:
        wish = Wish(least=number, most=number, shares=shares)
        assert choose(index(nodes), wish) == choose(index(shuffled), wish)


@settings(max_examples=examples(200), deadline=None)
@given(nodes=clusters(), number=st.integers(1, 12))
def test_largest_first_fills_every_node_but_the_last(nodes: list[Site], number: int) -> None:
    found = choose(index(nodes), Wish(least=number, most=number, shares="largest-first"))
    if found is not None:
        usable = {node.name: node.usable for node in nodes}
        assert all(share == usable[name] for name, share in found.shares[:-1]) or found.span == 0


@pytest.mark.parametrize("shares", ["equal", "any", "largest-first"])
@settings(max_examples=examples(200), deadline=None)
@given(nodes=clusters(), least=st.integers(1, 10), more=st.integers(0, 6), unit=st.integers(1, 3))
def test_of_a_range_as_if_every_number_were_tried(
    shares: Shares, nodes: list[Site], least: int, more: int, unit: int
) -> None:
    there = index(nodes)
    best = None
    for number in range(least + more, least - 1, -1):
        each = choose(there, Wish(least=number, most=number, shares=shares, unit=unit))
        if each is not None and (best is None or each.span < best.span):
            best = each
    assert choose(there, Wish(least=least, most=least + more, shares=shares, unit=unit)) == best


def test_largest_first_takes_the_model_with_the_larger_shares() -> None:
    """What --shares says comes before fragmentation: not the model whose nodes are broken up less."""
    nodes = [
        *(Site(name=f"a{at}", free=free, usable=free, model="A100") for at, free in enumerate((5, 5))),
        *(Site(name=f"t{at}", free=free, usable=free, model="T4") for at, free in enumerate((3, 4))),
    ]
    assert best(index(nodes), 7, shares="largest-first").shares == (("a0", 5), ("a1", 2))
    assert best(index(nodes), 7, shares="any").shares == (("t1", 4), ("t0", 3))


@pytest.mark.slow
@pytest.mark.parametrize("shares", ["equal", "any"])
def test_nothing_better_exists_in_twenty_thousand_small_clusters(shares: Shares) -> None:
    random = Random(shares)
    for _ in range(20_000):
        depth = random.randint(0, 2)
        nodes = []
        for at in range(random.randint(1, 4)):
            free = random.randint(0, 5)
            usable = random.choice((free, random.randint(0, free)))
            domains = tuple(random.choice(("a", "b", "")) for _ in range(depth))
            model = random.choice("MMN")
            nodes.append(Site(name=f"n{at}", free=free, usable=usable, model=model, domains=domains))
        check_best(shares, nodes, random.randint(1, 10))
