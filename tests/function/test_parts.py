"""The pure parts: literals, names, order, import paths."""

import ast
import random
import textwrap
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.function.gather import Piece, in_order
from echelon.function.literals import literal
from echelon.function.modules import import_path, project_of
from echelon.function.names import names_in

atoms = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
data = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.sets(st.integers() | st.text(), max_size=1)
    ),
    max_leaves=20,
)


@given(data)
def test_a_literal_is_the_value_again(value):
    text = literal(value)
    if text is not None:
        again = ast.literal_eval(text)
        assert again == value
        assert repr(again) == repr(value)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), set(), OrderedDict(), "x" * 2000, object()])
def test_what_has_no_short_literal(value):
    assert literal([value]) is None


def test_a_list_inside_itself_has_no_literal():
    loop: list = []
    loop.append(loop)
    assert literal(loop) is None
    assert literal(10**5000) is None


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_order_puts_what_is_used_at_once_first(seed, count):
    choose = random.Random(seed)
    names = [f"n{i}" for i in range(count)]
    pieces = {
        name: Piece(
            text=name,
            now=frozenset(choose.sample(names[:at], choose.randint(0, at))),
            later=frozenset(choose.sample(names, choose.randint(0, count))),
        )
        for at, name in enumerate(names)
    }
    typed = dict(zip(choose.sample(names, count), range(count), strict=True))
    ordered = in_order(pieces, typed)
    assert sorted(ordered) == sorted(names)
    for name, piece in pieces.items():
        assert all(ordered.index(used) < ordered.index(name) for used in piece.now)


def test_names_are_told_apart_by_when_they_are_used():
    names = names_in(
        textwrap.dedent("""
        @decorate(option)
        class Model(base.Class):
            size = [scale * i for i in range(3)]
            field: Hint["Further"] = default
            def run(self, x: Hint = start) -> Result:
                global state
                state = later.part.deep(x)
                import inside.module
                return [self.run(y) for y in Model.size]
        """)
    )
    assert names.now == {"decorate", "option", "base", "scale", "range", "default", "start"}
    assert names.later == {"state", "later"}
    assert names.fields == {"Hint", "Further"}
    assert names.hints == {"Result"}
    assert "later.part.deep" in names.dotted
    assert names.imports == {"inside.module"}


def test_a_class_needs_no_name_of_its_module_that_it_has_bound_itself():
    names = names_in(
        textwrap.dedent("""
        class Model:
            size = 1
            double = size * 2
            rate = rate
            @property
            def name(self): return 1
            @name.setter
            def name(self, value): pass
        """)
    )
    assert names.now == {"rate", "property"}


def test_import_paths_are_the_ones_people_type():
    import numpy as np

    assert import_path(np.ndarray) == ("numpy", "ndarray")
    assert import_path(OrderedDict) == ("collections", "OrderedDict")
    assert import_path(OrderedDict.fromkeys) == ("collections", "OrderedDict.fromkeys")
    assert import_path(random.choice) == ("random", "choice")
    assert import_path(np.random.rand) in (("numpy.random", "rand"), ("numpy.random.mtrand", "rand"))
    assert import_path(Path.cwd) == ("pathlib", "Path.cwd")
    assert import_path("text".upper) is None
    assert import_path(lambda: None) is None
    assert import_path(3) is None


def test_the_project_is_the_nearest_folder_with_a_mark(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_of(inner) == inner
    (tmp_path / "a" / ".git").mkdir()
    assert project_of(inner) == tmp_path / "a"
