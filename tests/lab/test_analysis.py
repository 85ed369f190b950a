"""A notebook as the panel in JupyterLab shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.notebook.books import Cells

from echelon.errors import InvalidJob
from echelon.lab.analysis import Analysis, Problem, analyse
from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.analysis.tags import Choice, choice_of, followed, retagged


def document_of(cells: Cells) -> dict[str, Any]:
    """What the panel sends: the cells as they are now, without outputs."""
    made = [
        {"cell_type": "code", "source": text, "metadata": {"tags": tags.split()} if tags else {}}
        for tags, text in cells
    ]
    text = {"cell_type": "markdown", "source": "# Training", "metadata": {}}
    return {"cells": [text, *made], "metadata": {}}


def looked_at(*cells: tuple[str, str]) -> Analysis:
    return analyse(document_of(cells), Path("train.ipynb"))


def test_cells_steps_parameters_and_the_graph() -> None:
    found = looked_at(
        ("imports", "import math"),
        ("pipeline-parameters", "lr = 0.1\nname = 'a b'\nepochs: int"),
        ("step:load", "data = [1, 2]"),
        ("", "data.append(3)"),
        ("step:train prev:load numWorkers:2", "loss = sum(data) * lr"),
    )
    assert found.problems == ()
    assert [(cell.number, cell.steps, cell.everywhere) for cell in found.cells] == [
        (2, (), True),
        (3, (), True),
        (4, ("load",), False),
        (5, ("load",), False),
        (6, ("train",), False),
    ]
    assert found.cells[4].choice == Choice(steps=("train",), after=("load",), distribute="auto", workers=2)
    assert [(step.name, step.cells, step.after) for step in found.steps] == [
        ("load", (4, 5), ()),
        ("train", (6,), ("load",)),
    ]
    assert [(each.name, each.kind, each.text, each.required) for each in found.parameters] == [
        ("lr", "float", "0.1", False),
        ("name", "str", "a b", False),
        ("epochs", "int", "", True),
    ]
    assert 'data-step="train"' in found.svg
    assert ">data<" in found.svg


def test_what_does_not_fit_is_placed_at_its_cell() -> None:
    found = looked_at(("step:load", "data = 1"), ("step:train prev:lod", "print(data)"))
    assert found.problems == (
        Problem(text="prev:lod: 'lod' is not a step", hint="did you mean prev:load?", cell=3),
    )
    found = looked_at(("step:load", "data = 1"), ("step:train prev:load", "x = 1\nprint(dato)"))
    assert [(each.cell, each.line) for each in found.problems] == [(3, 2)]
    assert "'dato' is defined nowhere" in found.problems[0].text
    assert 'data-step="train"' in found.svg  # the order is shown all the same


def test_all_cells_that_are_wrong_by_themselves_are_shown_at_once() -> None:
    found = looked_at(("step:No", "1"), ("step:load", "x ="), ("skip", "x ="), ("step:a workers:no", "1"))
    assert [each.cell for each in found.problems] == [2, 3, 5]
    assert found.svg == ""
    assert [step.name for step in found.steps] == ["load", "a"]
    assert [cell.choice.steps for cell in found.cells] == [(), ("load",), (), ("a",)]


def test_all_that_does_not_fit_is_shown_at_once_each_at_its_cell() -> None:
    found = looked_at(
        ("functions", "def f():\n    return nowhere"),
        ("step:load", "data, more = f(), 2\nprint(dato)"),
        ("step:train", "print(data)\nprint(more)\nprint(lost, lots)"),
        ("step:look prev:load", "lines = (line for line in data)\nprint(lost)"),
        ("step:end prev:look", "list(lines)"),
        ("pipeline-metrics", "loss"),
    )
    assert [(each.cell, each.line, each.text.partition(";")[0]) for each in found.problems] == [
        (2, 1, "'nowhere' is defined nowhere"),
        (3, 2, "'dato' is defined nowhere"),
        (4, 1, "step 'train' reads 'data', which step 'load' makes"),  # one tag brings `more`, too
        (4, 3, "'lost' is defined nowhere"),
        (4, 3, "'lots' is defined nowhere"),
        (5, 1, "step 'look' hands 'lines' on, a generator or an open file, which cannot be kept"),
        (5, 2, "'lost' is defined nowhere"),
        (None, None, "pipeline-metrics: 'loss' is defined nowhere"),
    ]
    assert all(each.hint for each in found.problems)
    assert 'data-step="end"' in found.svg


def test_all_unknown_predecessors_are_shown_and_the_steps_can_still_be_chosen() -> None:
    found = looked_at(
        ("step:a", "1"), ("step:b prev:x prev:a", "1"), ("", "2"), ("step:c prev:y prev:c", "1")
    )
    assert [(each.cell, each.text) for each in found.problems] == [
        (3, "prev:x: 'x' is not a step"),
        (5, "prev:y: 'y' is not a step"),
        (5, "prev:c: 'c' cannot come after itself"),
    ]
    assert [(step.name, step.cells, step.after) for step in found.steps] == [
        ("a", (2,), ()),
        ("b", (3,), ("x", "a")),
        ("c", (5,), ("y", "c")),
    ]
    assert [cell.steps for cell in found.cells] == [("a",), ("b",), (), ("c",)]
    found = looked_at(("step:a limit:nvidia.com/gpu:x", "1"), ("step:b limit:nvidia.com/gpu:y", "1"))
    assert [each.cell for each in found.problems] == [2, 3]


def test_a_notebook_without_steps_says_so() -> None:
    found = looked_at(("", "import math"))
    assert [(each.cell, each.text) for each in found.problems] == [(None, "train.ipynb: it has no step")]


def test_what_is_no_notebook_is_refused() -> None:
    with pytest.raises(InvalidNotebook, match="not a notebook of version 4"):
        analyse({"worksheets": []}, Path("old.ipynb"))


@pytest.mark.parametrize(
    ("before", "choice", "after"),
    [
        ((), Choice(steps=("load",)), ("step:load",)),
        (("block:old", "mine", "image:x"), Choice(steps=("load",)), ("block:load", "mine", "image:x")),
        (("step:a", "gpus:1"), Choice(), ()),
        (("step:a", "label:k:v"), Choice(kind="imports"), ("imports", "label:k:v")),
        (
            ("step:a", "limit:amd.com/gpu:1"),
            Choice(steps=("a",), after=("b", "c"), gpus=2, cpu="2", memory="4Gi"),
            (
                "step:a",
                "prev:b",
                "prev:c",
                "limit:cpu:2",
                "limit:memory:4Gi",
                "limit:nvidia.com/gpu:2",
                "limit:amd.com/gpu:1",
            ),
        ),
        (
            (),
            Choice(steps=("a",), distribute="parameter-server", workers=2, parameter_servers=1),
            ("step:a", "distribute:ParameterServerStrategy", "numWorkers:2", "numParameterServers:1"),
        ),
    ],
)
def test_a_choice_becomes_the_tags_of_the_command(
    before: tuple[str, ...], choice: Choice, after: tuple[str, ...]
) -> None:
    made = retagged(before, choice, 1)
    assert made == after
    assert choice_of(made) == choice
    assert retagged(made, choice, 1) == made


def test_what_was_spelled_otherwise_stays_if_nothing_was_chosen() -> None:
    tags = ("prev:b", "workers:2", "gpus:1", "step:a")
    assert retagged(tags, choice_of(tags), 1) == tags


def test_a_choice_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidNotebook, match="cell 7: 'Load it' cannot name a step"):
        retagged((), Choice(steps=("Load it",)), 7)
    with pytest.raises(InvalidJob, match="limit:memory"):
        retagged((), Choice(steps=("load",), memory="4 elephants"), 7)


CELLS = {
    2: ("step:load", "mine"),
    3: ("step:clean", "prev:load"),
    5: ("block:train", "prev:load", "prev:clean"),
    6: ("step:look", "prev:clean"),
    7: ("step:look",),
}


@pytest.mark.parametrize(
    ("cell", "tags", "others"),
    [
        # Another name: those that come after it follow.
        (
            2,
            "step:fetch mine",
            {3: "step:clean prev:fetch", 5: "block:train prev:fetch prev:clean"},
        ),
        (3, "block:wash prev:load", {5: "block:train prev:load prev:wash", 6: "step:look prev:wash"}),
        # Nobody comes after it; a first name, and none any more; the same one.
        (5, "block:fit prev:load prev:clean", {}),
        (4, "step:new", {}),
        (2, "imports", {}),
        (2, "block:load", {}),
        # Two steps at once: which is which, nobody knows. Another cell is the step still.
        (2, "step:a step:b mine", {}),
        (6, "step:see prev:clean", {}),
        # It becomes a part of another step: those after it come after that one, once.
        (3, "step:load", {5: "block:train prev:load", 6: "step:look prev:load"}),
        (2, "step:clean mine", {3: "step:clean", 5: "block:train prev:clean"}),
    ],
)
def test_steps_follow_one_that_gets_another_name(cell: int, tags: str, others: dict[int, str]) -> None:
    changed = followed(CELLS, cell, tags.split())
    assert changed == {cell: tuple(tags.split()), **{at: tuple(now.split()) for at, now in others.items()}}


def test_a_step_that_joins_the_one_before_it_does_not_come_after_itself() -> None:
    assert followed(CELLS, 3, ("step:load", "prev:load"))[3] == ("step:load",)
