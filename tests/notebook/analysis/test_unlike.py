"""What steps do unlike a plain run is told before the run, with its cell."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from tests.notebook.books import Cells, read_book

TABLE = (
    "import numpy as np, pandas as pd\ntable = pd.DataFrame({'a': [1.0, 2.0]})\nzeros = np.zeros((2, 1))\n"
)


@pytest.fixture(autouse=True)
def pandas(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The version of pandas that is there."""
    versions = ["3.0.1"]
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: versions[0])
    return versions


def told(tmp_path: Path, made: str, *later: str) -> list[str]:
    steps = [("step:a", TABLE + made)]
    steps += [
        (f"step:{name} prev:{before}", text) for before, name, text in zip("abc", "bcd", later, strict=False)
    ]
    return [each for each in read_book(tmp_path, steps).warnings if "may share the memory" in each]


@pytest.mark.parametrize(
    ("change", "is_told"),
    [
        ("table.loc[0, 'a'] = 9\nprint(array)", True),
        ("table.iloc[0, 0] += 1\nprint(array)", True),
        ("table[table > 1] = 9\nprint(array)", True),
        ("for row in (0, 1):\n    table.loc[row, 'a'] = array[row]", True),
        ("array[0] = 9\nprint(table)", True),
        ("array += 1\nprint(table)", True),
        ("np.random.shuffle(array)\nprint(table)", True),
        ("array.sort()\nprint(table)", True),
        ("print(array, table)", False),
        ("array[0] = 9\nprint(array)", False),
        ("table['b'] = array * 2\nprint(table, array)", False),  # it puts a column in, or in the place of one
        ("table['a'] += 1\nprint(array)", False),
        ("table = table.copy()\ntable.loc[0, 'a'] = 9\nprint(array)", False),
        ("array = table.a.values\ntable.loc[0, 'a'] = 9\nprint(array)", False),
    ],
)
@pytest.mark.parametrize("taken", ["table['a'].values", "table.a.to_numpy()"])
def test_an_array_of_a_table_that_a_later_step_changes(
    tmp_path: Path, taken: str, change: str, is_told: bool
) -> None:
    says = "cell 1: 'array' may share the memory of 'table', and in step 'b', which changes one of them, "
    says += "it is a copy"
    assert told(tmp_path, f"array = {taken}", change) == ([says] if is_told else [])


@pytest.mark.parametrize(
    "made",
    [
        "array, other = table[['a']].values, 1",
        "array = {'x': [table.a.values]}",
        "array = table.values[:1].reshape(-1)",
        "array = table.values.T",
        "array = np.asarray(table)",
        "array = np.asarray(table['a'])",
        "import torch\narray = torch.from_numpy(table.a.values)",
        "array: object = table.a.values",
        "array = pd.DataFrame(zeros, copy=False)\ntable = zeros",
    ],
)
def test_ways_to_have_the_memory_of_a_table(tmp_path: Path, made: str) -> None:
    other = "zeros" if "zeros" in made else "table"
    assert told(tmp_path, made, f"{other}.loc[0, 'a'] = 9\nprint(array)")


@pytest.mark.parametrize(
    "made",
    [
        "array = np.array(table)",
        "array = table.a.values * 2",
        "array = dict(table).values()",
        "array = len(table.a.values)",
    ],
)
def test_copies(tmp_path: Path, made: str) -> None:
    assert not told(tmp_path, made, "table.loc[0, 'a'] = 9\nprint(array)")


def test_what_one_step_changes_and_another_reads(tmp_path: Path) -> None:
    (word,) = told(tmp_path, "array = table.a.values", "table.loc[0, 'a'] = 9", "print(array)")
    assert "in step 'b'" in word
    assert not told(tmp_path, "array = table.a.values", "print(array)", "table.loc[0, 'a'] = 9")


@pytest.mark.parametrize(
    "made",
    [
        "array = table['a']",
        "array = table[1:]",
        "array = table.iloc[:1]",
        "array = table.T",
        "array = pd.Series(zeros)\ntable = zeros",
    ],
)
@pytest.mark.parametrize("version", ["2.3.3", "3.0.1"])
def test_parts_of_a_table_before_pandas_3(tmp_path: Path, pandas: list[str], made: str, version: str) -> None:
    pandas[0] = version
    other = "zeros" if "zeros" in made else "table"
    assert bool(told(tmp_path, made, f"{other}.loc[0, 'a'] = 9\nprint(array)")) is (version == "2.3.3")


def test_a_mask_of_a_table_makes_a_copy(tmp_path: Path, pandas: list[str]) -> None:
    pandas[0] = "2.3.3"
    assert not told(tmp_path, "array = table[table.a > 1]", "table.loc[0, 'a'] = 9\nprint(array)")
    assert not told(tmp_path, "array = table[['a']]", "table.loc[0, 'a'] = 9\nprint(array)")


SEED = ("imports", "import os, random, signal, functools\nrandom.seed(1)")
LOAD = ("step:load", "x = 1")


def warnings(tmp_path: Path, cells: Cells) -> list[str]:
    return list(read_book(tmp_path, cells).warnings)


def test_branches_that_draw_from_one_seed(tmp_path: Path) -> None:
    left, right = ("step:l prev:load", "a = random.random()"), ("step:r prev:load", "b = random.random()")
    told = warnings(tmp_path, [SEED, LOAD, left, right])
    assert [each for each in told if each.startswith("cell 3: steps 'l' and 'r' both draw random numbers")]
    again = ("step:r prev:load", "random.seed(2)\nb = random.random()")
    assert not warnings(tmp_path, [SEED, LOAD, left, again])
    assert not warnings(tmp_path, [SEED, LOAD, left, ("step:r prev:l", "b = random.random()")])
    assert not warnings(tmp_path, [("imports", "import random"), LOAD, left, right])  # nobody has seeded


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("os.chdir('x')", "the current folder"),
        ("%cd x", "the current folder"),
        ("os.environ['A'] = '1'", "the environment"),
        ("%env A=1", "the environment"),
        ("print(os.environ.get('A'))", ""),
    ],
)
def test_a_branch_that_changes_the_process(tmp_path: Path, text: str, what: str) -> None:
    told = warnings(tmp_path, [SEED, LOAD, ("step:l prev:load", text), ("step:r prev:load", "print(x)")])
    expected = [f"cell 3: step 'l' changes {what}, and step 'r' does not see it"] if what else []
    assert [each.partition(":")[0] + ":" + each.split(":")[1] for each in told] == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("signal.signal(signal.SIGUSR1, print)", "cell 2: a signal's handler stays in step 'a'"),
        ("import codecs\ncodecs.register(print)", "cell 2: a registration stays in step 'a'"),
        (
            "import resource\nresource.setrlimit(4, (0, 0))",
            "cell 2: a setting of the process stays in step 'a'",
        ),
        ("import sys\nsys.settrace(print)", "cell 2: a trace function stays in step 'a'"),
        (
            "@functools.lru_cache\ndef read(x):\n    return open(x).read()\nread('a')",
            "cell 2: each step has a cache of its own for read",
        ),
        ("@functools.lru_cache\ndef double(x):\n    return abs(x) * 2\nread = double", ""),
        ("try:\n    get_ipython()\nexcept NameError:\n    pass\nread = 1", "cell 2: a step has no IPython"),
    ],
)
def test_what_stays_in_a_step(tmp_path: Path, text: str, says: str) -> None:
    told = warnings(
        tmp_path, [SEED, ("step:a", text), ("step:b prev:a", "print('read')\n'read' in globals() and read")]
    )
    assert [each for each in told if each.startswith(says)] if says else not told


@pytest.mark.parametrize(
    ("made", "of"),
    [
        ("stamp = time.time_ns()", "time.time_ns"),
        ("stamp = f'run-{datetime.datetime.now():%H%M}'", "datetime.datetime.now"),
        ("stamp: str = str(uuid.uuid4())", "uuid.uuid4"),
        ("stamp = time.sleep(0)", ""),
    ],
)
def test_what_the_prelude_makes_of_the_time_differs_between_steps(tmp_path: Path, made: str, of: str) -> None:
    prelude = ("imports", f"import datetime, time, uuid\n{made}")
    cells = [prelude, ("step:a", "one = stamp"), ("step:b prev:a", "print(one == stamp)")]
    told = warnings(tmp_path, cells)
    why = f"so that {of} gives it another value there (made in a step, it is handed on)"
    assert told == ([f"cell 1: each step makes 'stamp' anew, {why}"] if of else [])
    assert not warnings(tmp_path, [prelude, ("step:a", "one = stamp"), ("step:b prev:a", "print(one)")])
