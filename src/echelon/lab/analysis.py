"""A notebook as the panel shows it, saved or not: what each cell is, what does not fit, the graph. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.errors import EchelonError
from echelon.notebook.analysis.cells import InvalidNotebook, Notebook, notebook_of
from echelon.notebook.analysis.dataflow import StepFlow
from echelon.notebook.analysis.parameters import Code, Parameter, kind_of
from echelon.notebook.analysis.pipeline import Pipeline, Step, name_of, pipeline_of, size_of
from echelon.notebook.analysis.steps import Gathered, gather_steps
from echelon.notebook.analysis.tags import Choice, choice_of
from echelon.notebook.picture import as_svg, graph_of
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
    name: str  # of the pipeline, as its runs have it
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    steps: tuple[StepView, ...] = ()
    parameters: tuple[ParameterView, ...] = ()
    svg: str = ""


def analyse(document: Mapping[str, Any], path: Path) -> Analysis:
    """Look at a notebook; raises InvalidNotebook only if it is none."""
    notebook = notebook_of(document, path)
    problems: list[Problem] = []
    gathered, pipeline = None, None
    try:
        gathered = gather_steps(notebook)
        pipeline = pipeline_of(notebook)
    except EchelonError as error:
        problems += map(problem_of, (error, *error.others))
    if gathered is None:
        steps = _steps_by_tags(notebook)
        return Analysis(
            cells=_cells(notebook, steps), name=name_of(notebook), problems=tuple(problems), steps=steps
        )
    steps = tuple(
        StepView(name=step.name, cells=tuple(code.cell for code in step.cells), after=step.after)
        for step in gathered.steps
    )
    drawn = pipeline or _outline(notebook, gathered)
    return Analysis(
        cells=_cells(notebook, steps, gathered.prelude),
        name=name_of(notebook),
        problems=tuple(problems),
        warnings=pipeline.warnings if pipeline is not None else gathered.warnings,
        steps=steps,
        parameters=tuple(map(_parameter, gathered.parameters)),
        svg=as_svg(graph_of(drawn), downwards=True),
    )


def problem_of(error: EchelonError) -> Problem:
    """An error at its cell."""
    place = error.place if isinstance(error, InvalidNotebook) else None
    if not isinstance(error, InvalidNotebook) or place is None:
        return Problem(text=error.message, hint=error.hint)
    return Problem(text=error.problem, hint=error.hint, cell=place.cell, line=place.line)


def _steps_by_tags(notebook: Notebook) -> tuple[StepView, ...]:
    """The steps that cells are tagged with, while their order cannot be told: they can be chosen."""
    cells: dict[str, list[int]] = {}
    after: dict[str, list[str]] = {}
    for cell in notebook.cells:
        choice = choice_of(cell.tags)
        for name in choice.steps:
            cells.setdefault(name, []).append(cell.number)
            after.setdefault(name, []).extend(choice.after)
    return tuple(
        StepView(name=name, cells=tuple(own), after=tuple(after[name])) for name, own in cells.items()
    )


def _cells(
    notebook: Notebook, steps: Sequence[StepView], prelude: Sequence[Code] = ()
) -> tuple[CellView, ...]:
    everywhere = {code.cell for code in prelude}
    return tuple(
        CellView(
            number=cell.number,
            tags=cell.tags,
            choice=choice_of(cell.tags),
            steps=tuple(step.name for step in steps if cell.number in step.cells),
            everywhere=cell.number in everywhere,
        )
        for cell in notebook.cells
    )


def _outline(notebook: Notebook, gathered: Gathered) -> Pipeline:
    """The steps and their order alone, while their variables cannot be told."""
    steps = [
        Step(
            name=each.name,
            cells=each.cells,
            after=each.after,
            before=frozenset(),
            flow=StepFlow(inputs={}),
            options=each.options,
            size=size_of(each.options, "\n".join(code.text for code in each.cells)),
        )
        for each in gathered.steps
    ]
    return Pipeline(name="outline", notebook=notebook, steps=tuple(steps))


def _parameter(found: Parameter) -> ParameterView:
    text = found.value if isinstance(found.value, str) else "" if found.required else repr(found.value)
    return ParameterView(name=found.name, kind=kind_of(found), text=text, required=found.required)
