"""For random programs, cut into steps at random, the pipeline gives what running the cells in order gives."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.notebook.books import Cells, new_folder, read_book, run_in_order, run_inside
from tests.properties import examples

from echelon.notebook.analysis.cells import InvalidNotebook

START = """
i0, i1, i2 = 1, 2, 3
l0, l1, l2 = [1], [2, 2], [3]
d = {"x": [0]}
c = Bag()
count = counter(1)
more, seen = pair(1)
class Own:
    n, held = 0, []
def f(x): return (x, i0, len(l0))
"""
FUNCTIONS = """
class Bag:
    def __init__(self):
        self.n, self.held = 0, []
    def total(self):
        return self.n + i1 + len(self.held)
def counter(n):
    def count():
        nonlocal n
        n += 1
        return n
    return count
def pair(n):
    def more():
        nonlocal n
        n += 1
        return n
    return more, lambda: n
"""
END = """
shared = [a is b for a in (l0, l1, l2, d["x"], c.held) for b in (l0, l1, l2, d["x"], c.held)]
result = repr((count(), seen(), more(), seen(), Own.n, Own.held))
result += repr((i0, i1, i2, l0, l1, l2, d, f(1), c.n, c.held, c.total(), type(c) is Bag, shared))
with open("result.txt", "w") as file:
    file.write(result)
"""
NUMBER = st.integers(0, 2)
STATEMENTS = st.builds(
    lambda text, one, other, number: text.format(a=one, b=other, n=number),
    st.sampled_from(
        [
            "i{a} = {n}",
            "i{a} = i{b} + {n}",
            "i{a} += len(l{b})",
            "l{a} = [i{b}, {n}]",
            "l{a} = l{b}",
            "l{a} = l{b} + [{n}]",
            "l{a} = [l{b}, l{b}]",
            "l{a}.append(i{b})",
            "l{a}.append(tuple(l{b}))",
            "l{a} += [{n}]",
            "l{a}[0] = i{b}",
            "if i{a} > {n}:\n    l{b} = [{n}]",
            "for i{a} in range({n} + 1):\n    l{b}.append(i{a})",
            "d = {{'x': l{b}}}",
            "d['x'].append({n})",
            "d['y'] = l{a}",
            "def f(x): return (x, i{a}, len(l{b}))",
            "l{a}.append(f(i{b}))",
            "k = {n}\ng = lambda x: x + i{a} + k\ni{b} = g({n})",
            "i{a} = count()",
            "count = counter({n})",
            "i{a} = more()",
            "i{a} = seen()",
            "more, seen = pair({n})",
            "Own.n += i{b}",
            "Own.held.append({n})",
            "Own.held = l{b}",
            "c = Bag()",
            "c.n += i{b}",
            "c.held = l{b}",
            "c.held.append(c.total())",
            "def change(x, k={n}): x.append(k)\nchange(l{b})",
        ]
    ),
    NUMBER,
    NUMBER,
    st.integers(0, 5),
)
PLAIN = st.builds(
    lambda text, one, other, number: text.format(a=one, b=other, n=number),
    st.sampled_from(
        ["i{a} = {n}", "i{a} = i{b} + {n}", "i{a} += len(l{b})", "l{a} = [i{b}, {n}]", "l{a}.append({n})"]
    ),
    NUMBER,
    NUMBER,
    st.integers(0, 5),
)


def result_of(cells: Cells) -> str:
    with tempfile.TemporaryDirectory() as place:
        work = Path(place, "work")
        run_in_order(cells, work)
        return (work / "result.txt").read_text()


def piped_result_of(cells: Cells, *, refuse_races: bool = False) -> str:
    with tempfile.TemporaryDirectory() as place:
        pipeline = read_book(Path(place), cells)
        if refuse_races:
            assume(not pipeline.warnings)
        folder = new_folder(Path(place, "run-1"))
        assert set(run_inside(pipeline, folder).values()) == {0}
        return (folder.work / "result.txt").read_text()


@settings(max_examples=examples(200))
@given(st.lists(st.lists(STATEMENTS, min_size=1, max_size=4), min_size=1, max_size=5))
@example([["Own.held = l0"], ["d = {'x': l0}"], ["l0.append(0)"]])  # a class that shares what others change
def test_steps_in_a_chain_give_what_cells_in_order_give(cuts: list[list[str]]) -> None:
    cells = [("functions", FUNCTIONS), ("step:first", START)]
    before = "first"
    for number, statements in enumerate(cuts):
        cells += [(f"step:s{number} prev:{before}", "\n".join(statements))]
        before = f"s{number}"
    cells += [(f"step:last prev:{before}", END)]
    assert piped_result_of(cells) == result_of(cells)


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(st.lists(PLAIN, min_size=1, max_size=2), st.sets(st.integers(0, 4), max_size=2)),
        min_size=1,
        max_size=5,
    )
)
def test_a_graph_without_warnings_gives_what_cells_in_order_give(
    steps: list[tuple[list[str], set[int]]],
) -> None:
    cells = [("functions", FUNCTIONS), ("step:first", START)]
    for number, (statements, after) in enumerate(steps):
        prev = [f"prev:s{each}" for each in sorted(after) if each < number] or ["prev:first"]
        cells += [(" ".join([f"step:s{number}", *prev]), "\n".join(statements))]
    every = " ".join(f"prev:s{number}" for number in range(len(steps)))
    cells += [(f"step:last {every}", END)]
    try:
        found = piped_result_of(cells, refuse_races=True)
    except InvalidNotebook as refused:
        assume("neither comes before the other" not in refused.message)  # it asks for an order
        raise
    assert found == result_of(cells)


def test_functions_that_share_a_variable_still_do_in_later_steps() -> None:
    cells = [
        ("step:first", "i1 = 0\n" + FUNCTIONS + "more, seen = pair(1)"),
        ("step:second prev:first", "more()"),
        (
            "step:last prev:second",
            "more()\nwith open('result.txt', 'w') as file:\n    file.write(repr(seen()))",
        ),
    ]
    assert piped_result_of(cells) == result_of(cells) == "3"
