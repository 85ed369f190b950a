"""What steps do unlike a plain run is told before the run, with its cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.notebook.books import Cells, read_book

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
