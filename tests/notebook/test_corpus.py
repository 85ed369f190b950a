# ruff: noqa: E501 - a cell is one text
"""Notebooks that break Kale: each runs to its end, with the real code of a step's process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.notebook.books import Cells, new_folder, read_book, run_inside

CORPUS: dict[str, tuple[Cells, Any]] = {
    "untagged first cell": ([("", "import math\nbase = [4]"), ("step:a", "out = math.sqrt(base[0])")], 2.0),
    "star import": (
        [("imports", "from math import *"), ("step:a", "x = pi"), ("step:b prev:a", "out = floor(x)")],
        3,
    ),
    "star import in a step": ([("step:a", "from math import *\nx = pi"), ("step:b prev:a", "out = floor(x)")], 3),
    "writefile, then import": (
        [("step:a", "%%writefile helper_of_a.py\nanswer = 42"), ("step:b prev:a", "import helper_of_a\nout = helper_of_a.answer")],
        42,
    ),
    "commands": ([("step:a", "n = 3\nlines = !echo {n} $((1+1))\n!echo shown"), ("step:b prev:a", "out = lines")], ["3 2"]),
    "pip": ([("imports", "!pip --version"), ("step:a", "%pip --version\nout = 1")], 1),
    "diamond that reads": (
        [
            ("step:load", "d = {'a': 1}"),
            ("step:l prev:load", "x = d['a'] + 1"),
            ("step:r prev:load", "y = d['a'] + 2"),
            ("step:out prev:l prev:r", "out = (x, y, d['a'])"),
        ],
        [2, 3, 1],
    ),
    "parameters annotated, negative, None": (
        [("pipeline-parameters", "a: int = -1\nb = None\nc: float = -.5"), ("step:s", "out = [a, b, c]")],
        [-1, None, -0.5],
    ),
    "limits": ([("step:a limit:cpu:1 limit:memory:100Mi", "out = 1")], 1),
    "closures": (
        [
            ("step:a", "def maker(k):\n    def inner(x):\n        return x * k + shift\n    return inner\nshift = 1\nf = maker(3)"),
            ("step:b prev:a", "shift = 10"),
            ("step:c prev:b", "out = f(2)"),
        ],
        16,
    ),
    "a closure that counts": (
        [
            ("step:a", "def maker():\n    n = 0\n    def count():\n        nonlocal n\n        n += 1\n        return n\n    return count\nf = maker()\nf()"),
            ("step:b prev:a", "f()"),
            ("step:c prev:b", "out = f()"),
        ],
        3,
    ),
    "what functions and classes hold": (
        [
            ("step:a", "class C:\n    n, seen = 0, []\ndef f(x, had=[]):\n    had.append(x)\n    return had\nf.calls = 0"),
            ("step:b prev:a", "C.n += 1\nC.seen.append(2)\nf(3)\nf.calls += 1"),
            ("step:c prev:b", "out = [C.n, C.seen, f(4), f.calls]"),
        ],
        [1, [2], [3, 4], 1],
    ),
    "a class whose base and methods need one name": (
        [
            ("step:a", "import collections\nclass Own(collections.UserList):\n    def counted(self):\n        return collections.Counter(self.data)\none = Own('aab')\ndef make():\n    return Own('bb')"),
            ("step:b prev:a", "out = [one.counted()['a'], make().counted()['b']]"),
        ],
        [2, 2],
    ),
    "constants and cached properties": (
        [
            ("step:a", "import enum, functools\nclass Mode(enum.Flag):\n    A = 1\n    B = 2\nclass Own:\n    @functools.cached_property\n    def value(self):\n        return 3\none = Own()"),
            ("step:l prev:a", "both = (Mode.A | Mode.B).value"),
            ("step:r prev:a", "again = (Mode.B | Mode.A).value"),
            ("step:join prev:l prev:r", "out = [both, again, one.value, one.__dict__, Mode(3).value]"),
        ],
        [3, 3, 3, {"value": 3}, 3],
    ),
    "a class that is changed after objects of it were made": (
        [
            ("step:a", "class C:\n    n = 0\none = C()"),
            ("step:b prev:a", "C.n = 5"),
            ("step:c prev:b", "out = [C.n, one.n, type(one) is C]"),
        ],
        [5, 5, True],
    ),
    "a function with a cache": (
        [
            ("step:a", "import functools\n@functools.lru_cache(maxsize=7)\ndef square(x):\n    return x * x\nthree = functools.partial(square, 3)"),
            ("step:b prev:a", "out = [square(2), three(), square.cache_info().maxsize]"),
        ],
        [4, 9, 7],
    ),
    "a function with a cache in every step": (
        [
            ("functions", "import functools\n@functools.lru_cache\ndef square(x):\n    return x * x"),
            ("step:a", "f = [square]\nsquare(2)"),
            ("step:b prev:a", "out = [f[0](3), f[0] is square]"),
        ],
        [9, True],
    ),
    "a lock in every step": (
        [
            ("imports", "import threading\nlock = threading.Lock()"),
            ("step:a", "with lock:\n    x = 1"),
            ("step:b prev:a", "with lock:\n    out = x"),
        ],
        1,
    ),
    "the text of a function of a step before": (
        [
            ("step:a", "import inspect\ndef f(x):\n    return x + 1"),
            ("step:b prev:a", "out = inspect.getsource(f).splitlines()"),
        ],
        ["def f(x):", "    return x + 1"],
    ),
    "recursion between functions": (
        [
            ("step:a", "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n != 0 and even(n - 1)"),
            ("step:b prev:a", "out = even(10)"),
        ],
        True,
    ),
    "classes in cells": (
        [
            ("functions", "class Net:\n    def __init__(self):\n        self.w = [1]\n    def grow(self):\n        self.w.append(rate)"),
            ("step:a", "rate = 5\nclass Deep(Net):\n    pass\nnet, deep = Net(), Deep()"),
            ("step:b prev:a", "net.grow(); deep.grow()"),
            ("step:c prev:b", "out = [net.w, deep.w, isinstance(net, Net), type(deep) is Deep, isinstance(deep, Net)]"),
        ],
        [[1, 5], [1, 5], True, True, True],
    ),
    "dataclasses and enums": (
        [
            ("imports", "import dataclasses, enum"),
            ("step:a", "class Kind(enum.Enum):\n    A = 1\n@dataclasses.dataclass\nclass P:\n    kind: Kind\np = P(Kind.A)"),
            ("step:b prev:a", "out = [p.kind is Kind.A, isinstance(p, P), p == P(Kind.A)]"),
        ],
        [True, True, True],
    ),
    "a module is handed on": ([("step:a", "import math as m"), ("step:b prev:a", "out = m.floor(2.5)")], 2),
    "a change through a function": (
        [
            ("functions", "def add(where, what):\n    where.append(what)"),
            ("step:a", "x = []"),
            ("step:b prev:a", "add(x, 1)"),
            ("step:c prev:b", "out = x"),
        ],
        [1],
    ),
    "a class changed after its object was made": (
        [
            ("step:a", "class M:\n    x = 1\nm = M()"),
            ("step:b prev:a", "M.x = 5\nM.g = lambda self: self.x + 1"),
            ("step:c prev:b", "out = [m.x, m.g()]"),
        ],
        [5, 6],
    ),
    "object arrays": (
        [("step:a", "import numpy as np\nx = np.array([1, 'a', None], dtype=object)"), ("step:b prev:a", "out = x.tolist()")],
        [1, "a", None],
    ),
    "await at the top": (
        [("step:a", "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3\nout = await f()")],
        3,
    ),
    "future annotations": (
        [("step:a", "from __future__ import annotations\ndef f(x: Unknown) -> None: ...\nout = f.__annotations__['x']")],
        "Unknown",
    ),
    "a lambda and a partial": (
        [
            ("step:a", "import functools\nk = 2\nf = lambda x: x * k\ng = functools.partial(f, 4)"),
            ("step:b prev:a", "out = [f(1), g()]"),
        ],
        [2, 8],
    ),
    "a leading exit": ([("step:a", "out = 1\nimport sys\nsys.exit()"), ("step:b prev:a", "print(out)")], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CORPUS)
def test_it_runs(tmp_path: Path, name: str) -> None:
    cells, expected = CORPUS[name]
    pipeline = read_book(tmp_path, [*cells, ("pipeline-metrics", "out")], {})
    folder = new_folder(tmp_path / "run-1")
    codes = run_inside(pipeline, folder)
    assert set(codes.values()) == {0}
    found = [json.loads((folder.values / step / "published.json").read_text())["metrics"] for step in codes]
    out = [each["out"] for each in found if "out" in each][-1]
    numeric = isinstance(expected, int | float)
    assert out == (expected if numeric else repr(_as_written(cells, expected)))


def _as_written(cells: Cells, expected: Any) -> Any:
    """Tuples are written as lists above, where the notebook makes a tuple."""
    return tuple(expected) if any("out = (" in text for _, text in cells) else expected


@pytest.mark.slow
def test_a_torch_model_of_a_class_in_a_cell(tmp_path: Path) -> None:
    pipeline = read_book(
        tmp_path,
        [
            ("imports", "import torch"),
            ("step:a", "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.l = torch.nn.Linear(hidden, 1)\n    def forward(self, x):\n        return self.l(x) * scale\nhidden, scale = 3, 2.0\nnet = Net()\nopt = torch.optim.SGD(net.parameters(), lr=1.0)\nwith torch.no_grad():\n    for p in net.parameters():\n        p.fill_(1.0)"),
            ("step:b prev:a", "net(torch.ones(1, 3)).sum().backward(); opt.step()"),
            ("step:c prev:b", "out = float(net(torch.ones(1, 3)).detach())"),
            ("pipeline-metrics", "out"),
        ],
    )  # fmt: skip
    folder = new_folder(tmp_path / "run-1")
    assert set(run_inside(pipeline, folder).values()) == {0}
    metrics = json.loads((folder.values / "c" / "published.json").read_text())["metrics"]
    assert metrics["out"] == -8.0  # (1 - 2) * 3 + (1 - 2), times 2


def test_two_branches_that_change_a_name_through_a_function_are_refused_where_they_meet(
    tmp_path: Path,
) -> None:
    from echelon.notebook.analysis.cells import InvalidNotebook

    cells = [
        ("functions", "def add(where, what):\n    where.append(what)"),
        ("step:load", "x = []"),
        ("step:a prev:load", "add(x, 1)"),
        ("step:b prev:load", "add(x, 2)"),
        ("step:c prev:a prev:b", "print(x)"),
    ]
    pipeline = read_book(tmp_path, cells)
    with pytest.raises(InvalidNotebook, match="step c: steps 'a' and 'b' changed 'x'"):
        run_inside(pipeline, new_folder(tmp_path / "run-1"))


def test_the_step_that_makes_what_cannot_be_kept_fails_and_names_it(tmp_path: Path, capfd: Any) -> None:
    cells = [
        ("functions", "def rows():\n    return iter_rows()\ndef iter_rows():\n    yield 1"),
        ("step:a", "y = 1"),
        ("", "x = rows()"),
        ("step:b prev:a", "list(x)"),
    ]
    pipeline = read_book(tmp_path, cells)
    folder = new_folder(tmp_path / "run-1")
    assert run_inside(pipeline, folder) == {"a": 1}
    failure = json.loads((folder.results("a") / "failure.json").read_text())
    assert failure["cell"] == 3
    assert failure["error"].startswith("x, a generator, cannot be handed on to the next step")


def test_a_change_of_what_every_step_makes_is_handed_on_or_told(tmp_path: Path, capfd: Any) -> None:
    cells = [
        ("functions", "import threading\nclass C:\n    n = 0\nheld = [1]"),
        ("step:a", "C.n = 1\nheld.append(threading.Lock())"),
        ("step:b prev:a", "print(C.n, len(held))"),
    ]
    assert set(run_inside(read_book(tmp_path, cells), new_folder(tmp_path / "run-1")).values()) == {0}
    told = capfd.readouterr()
    assert "1 1" in told.out
    assert "cell 2: this step has changed held, which cannot be handed on" in told.err
    assert "changed C" not in told.err


def test_what_would_only_be_named_is_refused_where_it_is_made(tmp_path: Path, capfd: Any) -> None:
    """The process of the next step has no such name."""
    text = "class Named:\n    def __reduce__(self):\n        return 'only'\nonly = Named()\nheld = [only]"
    pipeline = read_book(tmp_path, [("step:a", text), ("step:b prev:a", "print(held)")])
    folder = new_folder(tmp_path / "run-1")
    assert run_inside(pipeline, folder) == {"a": 1}
    assert json.loads((folder.results("a") / "failure.json").read_text())["error"] == (
        "held, a list, cannot be handed on to the next step: "
        "only of the notebook cannot be written, only named"
    )


def test_a_failure_has_the_lines_of_the_cell(tmp_path: Path, capfd: Any) -> None:
    cells = [("functions", "def f(x):\n    return 1 / x"), ("step:a", "x = 0\n\nprint('before')\nf(x)")]
    folder = new_folder(tmp_path / "run-1")
    assert run_inside(read_book(tmp_path, cells), folder) == {"a": 1}
    failure = json.loads((folder.results("a") / "failure.json").read_text())
    assert (failure["cell"], failure["line"]) == (2, 4)
    assert failure["error"] == "ZeroDivisionError: division by zero"
    lines = failure["traceback"].splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[1].strip() == 'File "book.ipynb, cell 2", line 4, in <module>'
    assert lines[2].strip() == "f(x)"
    assert 'File "book.ipynb, cell 1", line 2, in f' in failure["traceback"]
    outputs = [json.loads(line) for line in (folder.results("a") / "cells.jsonl").read_text().splitlines()]
    assert [each["output_type"] for each in outputs[-1]["outputs"]] == ["stream", "error"]
