"""Which step a variable comes from, and what is refused before anything starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.notebook.books import Cells, new_folder, read_book, run_inside

from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.analysis.flow import flow_of
from echelon.notebook.analysis.parameters import Code
from echelon.notebook.picture import as_mermaid, as_svg, as_text, graph_of


def inputs(tmp_path: Path, cells: Cells) -> dict[str, dict[str, str]]:
    return {step.name: dict(step.flow.inputs) for step in read_book(tmp_path, cells).steps}


@pytest.mark.parametrize(
    ("text", "needs", "wants"),
    [
        ("x = x + 1", {"x"}, set()),
        ("x += 1", {"x"}, set()),
        ("x = 1\nprint(x)", set(), set()),
        ("if a:\n    x = 1\nprint(x)", {"a"}, {"x"}),
        ("if a:\n    x = 1\nelse:\n    x = 2\nprint(x)", {"a"}, set()),
        ("for i in r:\n    if i:\n        print(p)\n    p = i", {"r"}, {"p"}),
        ("try:\n    import x\nexcept ImportError:\n    x = None\nx", set(), set()),
        ("with open(p) as f:\n    y = f.read()\ny", {"p"}, set()),
        ("[a for a in b if a > c]", {"b", "c"}, set()),
        ("def f(x, k=d):\n    return x + g\nf(1)", {"d"}, {"g"}),
        ("class A(B):\n    y = z\n    def m(self):\n        return w", {"B", "z"}, {"w"}),
        ("class A:\n    y = 1\n    z = y + 1", set(), set()),
        ("class A:\n    y = y\n    def m(self): return y", {"y"}, set()),
        (
            "class A:\n    def y(self): pass\n    y = property(y)\n    @y.setter\n    def y(self, v): pass",
            set(),
            set(),
        ),
        ("class A:\n    if c:\n        y = 1\n    z = y", {"c", "y"}, set()),
        (
            "class A:\n    try:\n        import y\n    except ImportError:\n        y = None\n    z = y",
            set(),
            set(),
        ),
        ("class A:\n    for i in r:\n        n = i\n    m = i, n", {"r"}, set()),
        ("print(x)\ndel x", {"x"}, set()),
        ("match v:\n    case [a, *b]:\n        print(a, b)", {"v"}, set()),
        ("await job()\nasync with s as t:\n    print(t)", {"job", "s"}, set()),
        ("if (n := len(a)) > 1:\n    print(n)", {"a"}, set()),
        ("if (m := f(a)) and m > 1:\n    print(m)", {"f", "a"}, {"m"}),
        ("pair = [y := 2, y + z]", {"z"}, {"y"}),
        ("try:\n    x = done\nexcept NameError:\n    x = 0\nprint(x)", set(), {"done"}),
        ("try:\n    x = done\nexcept ValueError:\n    x = 0", {"done"}, set()),
        ("if 'y' in globals():\n    print(y)\nelse:\n    y = z", {"z"}, {"y"}),
        ("def f():\n    return y if 'y' in globals() else 1\nf()", set(), {"y"}),
        ("match v:\n    case n if n > most:\n        print(n)", {"v", "most"}, set()),
        (
            "match v:\n    case Point(x=0) | Color.RED | {Keys.name: q, **rest}:\n        print(rest)",
            {"v", "Point", "Color", "Keys"},
            set(),
        ),
        ("x: int = y", {"y"}, set()),
        ("x: int\ny = x", set(), {"x"}),
        ("x: Own\nx = 1", {"Own"}, set()),
        ("_echelon_shell('ls {x}', {'x': x})", {"x"}, set()),
    ],
)
def test_what_a_text_needs(text: str, needs: set[str], wants: set[str]) -> None:
    flow = flow_of([Code(cell=1, text=text)])
    assert (set(flow.needs), set(flow.wants)) == (needs, wants)


def test_the_last_step_before_that_makes_a_name_hands_it_on(tmp_path: Path) -> None:
    found = inputs(
        tmp_path,
        [
            ("step:load", "x = 1\ny = 2"),
            ("step:clean prev:load", "x = x + y"),
            ("step:train prev:clean", "model = x * y"),
            ("step:look prev:load", "print(x)"),
        ],
    )
    assert found == {
        "load": {},
        "clean": {"x": "load", "y": "load"},
        "train": {"x": "clean", "y": "load"},
        "look": {"x": "load"},
    }


def test_a_variable_with_the_name_of_something_built_in_is_handed_on(tmp_path: Path) -> None:
    found = inputs(
        tmp_path,
        [
            ("step:first", "print(sum([1]), input)"),
            ("step:load prev:first", "input = [1, 2]\ndef sum(x): return len(x)"),
            ("step:use prev:load", "total = sum(input) + max(input)"),
        ],
    )
    assert found == {"first": {}, "load": {}, "use": {"input": "load", "sum": "load"}}


def test_a_step_gets_the_variables_of_its_commands(tmp_path: Path) -> None:
    found = inputs(
        tmp_path,
        [
            ("step:load", "url = 'x'\nimport os"),
            ("step:fetch prev:load", "!wget $url -O $HOME/{os.path.basename(url)}"),
        ],
    )
    assert found["fetch"] == {"url": "load", "os": "load"}


def test_a_step_that_only_declares_a_name_gets_it_and_does_not_make_it(tmp_path: Path) -> None:
    found = inputs(
        tmp_path,
        [
            ("step:load", "x = 1"),
            ("step:left prev:load", "x: int\ny = x + 1"),
            ("step:right prev:load", "x: int\nz = x + 2"),
            ("step:both prev:left prev:right", "print(x, y, z)"),
        ],
    )
    assert found["left"] == found["right"] == {"x": "load"}
    assert found["both"] == {"x": "load", "y": "left", "z": "right"}


def test_what_a_function_reads_comes_with_it(tmp_path: Path) -> None:
    found = inputs(
        tmp_path,
        [
            ("functions", "def scaled(v):\n    return v * factor"),
            ("step:load", "factor = 2\nbias = 1\ndef shifted(v):\n    return scaled(v) + bias"),
            ("step:use prev:load", "r = shifted(3)"),
            ("step:keep prev:load", "table = {'f': shifted}"),
            ("step:call prev:keep", "table['f'](1)"),
        ],
    )
    assert found["use"] == {"shifted": "load", "bias": "load", "factor": "load"}
    assert found["call"] == {"table": "keep", "bias": "load", "factor": "load", "shifted": "load"} or found[
        "call"
    ] == {"table": "keep", "bias": "load", "factor": "load"}


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([("step:a", "x = 1\nprint(x)\nprint(y)")], "cell 1, line 3: 'y' is defined nowhere"),
        (
            [("step:a", "y = 1"), ("step:b", "x = 1\nprint(y)")],
            r"cell 2, line 2: step 'b' reads 'y', which step 'a' makes.*prev:a",
        ),
        ([("step:a", "def f():\n    return nope\nf()")], "cell 1, line 1: 'nope' is defined nowhere"),
        (
            [("functions", "def f():\n    return nope"), ("step:a", "f()")],
            "cell 1, line 1: 'nope' is defined",
        ),
        ([("step:a", "x = [*map(lambda v: nope, [1])]")], "cell 1, line 1: 'nope' is defined nowhere"),
        ([("step:a", "def f():\n    return nope"), ("step:b prev:a", "g = f")], "cell 1, line 1: 'nope' is"),
        ([("imports", "x = y"), ("step:a", "y = 1")], "cell 1, line 1: 'y' is not defined in the cells that"),
        (
            [
                ("step:load", "d = {}"),
                ("step:a prev:load", "d['a'] = 1"),
                ("step:b prev:load", "d['b'] = 1"),
                ("step:c prev:a prev:b", "print(d)"),
            ],
            "cell 4, line 1: steps 'a' and 'b' may both change 'd'",
        ),
        (
            [("step:a", "g = (i for i in [1])"), ("step:b prev:a", "list(g)")],
            "cell 1, line 1: step 'a' hands 'g'",
        ),
        (
            [("step:a", "def g():\n    yield 1\nh = g()"), ("step:b prev:a", "list(h)")],
            "cell 1, line 3: step 'a' hands 'h' on, a generator",
        ),
        ([("step:a", "f = open('x')"), ("step:b prev:a", "f.read()")], "cell 1, line 1: step 'a' hands 'f'"),
        ([("step:a", "x = 1"), ("pipeline-metrics", "print(loss)")], "pipeline-metrics: 'loss' is defined"),
    ],
)
def test_what_can_never_work_is_refused_with_cell_and_line(tmp_path: Path, cells: Cells, says: str) -> None:
    with pytest.raises(InvalidNotebook) as refused:
        read_book(tmp_path, cells)
    assert re.search(says, str(refused.value))
    assert refused.value.hint
    assert refused.value.exit_code == 110


@pytest.mark.parametrize("tag", ["step:a", "functions"])
@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return nope",
        "f = lambda: nope",
        "class F:\n    def f(self):\n        return nope",
        "def f():\n    return nope\ndef g():\n    return f()",  # nothing calls g
    ],
)
def test_a_name_in_a_function_that_nothing_calls_is_told(tmp_path: Path, tag: str, text: str) -> None:
    cells = [(tag, text), *([("step:b", "1")] if tag == "functions" else ())]
    (told,) = read_book(tmp_path, cells).warnings
    assert told.startswith("cell 1, line 1: 'nope' is defined nowhere; only a function reads it")
    assert run_inside(read_book(tmp_path, cells), new_folder(tmp_path / "book-1")) == {cells[-1][0][5:]: 0}


def test_branches_that_only_read_a_name_are_no_conflict(tmp_path: Path) -> None:
    found = inputs(
        tmp_path,
        [
            ("step:load", "d = [1]"),
            ("step:a prev:load", "i = 1\nx = sum(d)"),
            ("step:b prev:load", "i = 2\ny = len(d)"),
            ("step:c prev:a prev:b", "for i in d:\n    print(i, x, y)"),
        ],
    )
    assert found["c"] == {"d": "load", "x": "a", "y": "b"}


def test_a_star_import_is_warned_of_and_repeated(tmp_path: Path) -> None:
    pipeline = read_book(
        tmp_path, [("step:a", "from math import *\nx = pi"), ("step:b prev:a", "y = sqrt(x)")]
    )
    assert "from math import *" in pipeline.warnings[0]
    assert pipeline.steps[1].flow.repeats == ("from math import *",)


def test_a_change_beside_a_reader_is_warned_of(tmp_path: Path) -> None:
    pipeline = read_book(
        tmp_path,
        [("step:load", "x = [1]"), ("step:a prev:load", "x.append(2)"), ("step:b prev:load", "print(x)")],
    )
    assert "step 'b' reads 'x' as 'load' left it" in pipeline.warnings[0]


def test_a_literal_number_of_workers_that_differs_is_warned_of(tmp_path: Path) -> None:
    pipeline = read_book(
        tmp_path, [("step:a distribute:torch workers:2", "num_workers = 4\nprint(num_workers)")]
    )
    assert any("cell 1 says 4 workers" in text for text in pipeline.warnings)


def test_drawings(tmp_path: Path) -> None:
    pipeline = read_book(
        tmp_path,
        [
            ("step:load", "x = 1"),
            ("step:train prev:load distribute:torch workers:2", "m = x"),
            ("step:look prev:load", "1"),
        ],
    )
    assert as_text(graph_of(pipeline)) == [
        "step       after  gets",
        "load",
        "  └ train  load   x from load  2 workers, torch",
        "  └ look   load",
    ]
    assert "load -->|x| train" in as_mermaid(graph_of(pipeline))
    assert "load --> look" in as_mermaid(graph_of(pipeline))
    reserved = read_book(tmp_path, [("step:graph", "x = 1"), ("step:end prev:graph", "print(x)")])
    assert 'END["end"]' in as_mermaid(graph_of(reserved))
    assert "GRAPH -->|x| END" in as_mermaid(graph_of(reserved))
    import xml.etree.ElementTree as ET

    assert len(ET.fromstring(as_svg(graph_of(pipeline))).findall(".//{*}rect")) == 3


def test_a_drawing_downwards_leads_lines_around_steps(tmp_path: Path) -> None:
    import xml.etree.ElementTree as ET

    cells = [("step:a", "x = 1"), ("step:b prev:a", "y = x"), ("step:c prev:b", "print(x, y)")]
    picture = ET.fromstring(as_svg(graph_of(read_book(tmp_path, cells)), downwards=True))
    boxes = {each.get("data-step"): each.find("{*}rect") for each in picture.findall("{*}g")}
    assert [box.get("y") for box in boxes.values() if box is not None] == ["8", "90", "172"]
    assert len(picture.findall("{*}path")) == 3  # that of x from a to c goes around b


def test_a_class_that_a_later_step_changes_comes_beside_its_objects(tmp_path: Path) -> None:
    """An object brings its class along as it was when the object was written."""
    made = ("step:a", "class M:\n    x = 1\nm = M()\nmany = [M()]")
    changed = ("step:b prev:a", "M.x = 5")
    for reads in ("m", "many"):
        found = inputs(tmp_path, [made, changed, ("step:c prev:b", f"print({reads})")])
        assert found["c"] == {"M": "b", reads: "a"}
    between = ("step:b prev:a", "setattr(M, 'x', 5)")  # a change that cannot be seen in the text
    assert inputs(tmp_path, [made, between, ("step:c prev:b", "print(m)")])["c"] == {"M": "a", "m": "a"}
    assert inputs(tmp_path, [made, ("step:c prev:a", "print(m)")])["c"] == {"m": "a"}


def test_classes_of_the_same_name_in_two_branches_do_not_meet(tmp_path: Path) -> None:
    cells = [
        ("step:a", "class M:\n    x = 1"),
        ("step:b prev:a", "M.x = 2\nleft = M()"),
        ("step:c prev:a", "class M:\n    x = 3\nright = M()"),
        ("step:d prev:b prev:c", "print(left, right)"),
    ]
    assert inputs(tmp_path, cells)["d"] == {"left": "b", "right": "c"}
