"""A notebook as the panel shows it, saved or not: what each cell is, what does not fit, the graph. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.errors import EchelonError
from echelon.notebook.cells import Cell, InvalidNotebook, Notebook, Place, notebook_of
from echelon.notebook.dataflow import StepFlow
from echelon.notebook.drawing import as_svg
from echelon.notebook.graph import graph_of
from echelon.notebook.magics import plain_code
from echelon.notebook.parameters import Parameter, kind_of
from echelon.notebook.pipeline import Pipeline, Step, pipeline_of, size_of
from echelon.notebook.steps import Gathered, gather_steps
from echelon.notebook.tagging import Choice, choice_of
from echelon.notebook.tags import read_tags
from echelon.values import frozen


@frozen
class Problem:
    """What does not fit, and what to do; `cell` is None if it is of no one cell."""

    text: str
    hint: str = ""
    cell: int | None = None
    line: int | None = None


@frozen
class CellView:
    """A code cell: its number counts all cells from 1."""

    number: int
    tags: tuple[str, ...]
    choice: Choice
    steps: tuple[str, ...] = ()  # that it belongs to, also by the cells before it
    everywhere: bool = False  # whether it runs in every step


@frozen
class ParameterView:
    """A field of the form before a run: `text` is the notebook's own value."""

    name: str
    kind: str
    text: str
    required: bool


@frozen
class StepView:
    """A step of the graph."""

    name: str
    cells: tuple[int, ...]
    after: tuple[str, ...]


@frozen
class Analysis:
    """A notebook. With problems there may be no graph, and there are no variables in it."""

    cells: tuple[CellView, ...]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    steps: tuple[StepView, ...] = ()
    parameters: tuple[ParameterView, ...] = ()
    svg: str = ""


def analyse(document: Mapping[str, Any], path: Path) -> Analysis:
    """Look at a notebook; raises InvalidNotebook only if it is none."""
    notebook = notebook_of(document, path)
    problems = [found for cell in notebook.cells for found in _problems_of(cell)]
    gathered, pipeline = None, None
    if not problems:
        try:
            gathered = gather_steps(notebook)
            pipeline = pipeline_of(notebook)
        except EchelonError as error:
            problems.append(problem_of(error))
    if gathered is None:
        return Analysis(cells=_cells(notebook, None), problems=tuple(problems))
    drawn = pipeline or _outline(notebook, gathered)
    return Analysis(
        cells=_cells(notebook, gathered),
        problems=tuple(problems),
        warnings=pipeline.warnings if pipeline is not None else gathered.warnings,
        steps=tuple(
            StepView(name=step.name, cells=tuple(code.cell for code in step.cells), after=step.after)
            for step in gathered.steps
        ),
        parameters=tuple(map(_parameter, gathered.parameters)),
        svg=as_svg(graph_of(drawn), downwards=True) if drawn is not None else "",
    )


def problem_of(error: EchelonError) -> Problem:
    """An error at its cell."""
    place = error.place if isinstance(error, InvalidNotebook) else None
    if not isinstance(error, InvalidNotebook) or place is None:
        return Problem(text=error.message, hint=error.hint)
    return Problem(text=error.problem, hint=error.hint, cell=place.cell, line=place.line)


def _problems_of(cell: Cell) -> Sequence[Problem]:
    """What is wrong with a cell whatever the others are: all such cells are shown at once."""
    try:
        if read_tags(cell).kind != "skip":
            plain_code(cell.text, Place(cell=cell.number))
    except InvalidNotebook as error:
        return [problem_of(error)]
    return ()


def _cells(notebook: Notebook, gathered: Gathered | None) -> tuple[CellView, ...]:
    steps: dict[int, list[str]] = {}
    for step in gathered.steps if gathered is not None else ():
        for code in step.cells:
            steps.setdefault(code.cell, []).append(step.name)
    everywhere = {code.cell for code in gathered.prelude} if gathered is not None else set()
    return tuple(
        CellView(
            number=cell.number,
            tags=cell.tags,
            choice=choice_of(cell.tags),
            steps=tuple(steps.get(cell.number, ())),
            everywhere=cell.number in everywhere,
        )
        for cell in notebook.cells
    )


def _outline(notebook: Notebook, gathered: Gathered) -> Pipeline | None:
    """The steps and their order alone, while their variables cannot be told; None if their sizes cannot."""
    try:
        steps = [
            Step(
                name=each.name,
                cells=each.cells,
                after=each.after,
                before=frozenset(),
                flow=StepFlow(inputs={}),
                options=each.options,
                size=size_of(each.options, "\n".join(code.text for code in each.cells), f"step {each.name}"),
            )
            for each in gathered.steps
        ]
    except InvalidNotebook:
        return None
    return Pipeline(name="outline", notebook=notebook, steps=tuple(steps))


def _parameter(found: Parameter) -> ParameterView:
    text = found.value if isinstance(found.value, str) else "" if found.required else repr(found.value)
    return ParameterView(name=found.name, kind=kind_of(found), text=text, required=found.required)
