"""Cells gathered to steps.

Cells tagged `imports`, `pipeline-parameters` and `functions` are the prelude: every step runs them first. An
untagged cell joins the cell before it. Before the first step it joins the prelude if it only imports and
defines, and otherwise makes a step of its own, `start`, which every step without `prev:` comes after."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from echelon.notebook.analysis.cells import Cell, CellLine, InvalidNotebook, Notebook, refuse
from echelon.notebook.analysis.magics import plain_code
from echelon.notebook.analysis.parameters import Code, Parameter, replace_values
from echelon.notebook.analysis.tags import (
    CellTags,
    Kind,
    StepOptions,
    merge_options,
    read_tag_list,
    read_tags,
)
from echelon.values import frozen

START = "start"
_PRELUDE: tuple[Kind, ...] = ("imports", "pipeline-parameters", "functions")


@frozen
class StepCells:
    """A step as its cells say it: nothing is known of its variables yet."""

    name: str
    cells: tuple[Code, ...]
    after: tuple[str, ...] = ()
    options: StepOptions = field(default_factory=StepOptions)


@frozen
class Gathered:
    """A notebook's steps, in the order in which they can run."""

    steps: tuple[StepCells, ...]
    prelude: tuple[Code, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    metrics: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Step:
    first_cell: int
    cells: list[Code] = field(default_factory=list)
    after: dict[str, int] = field(default_factory=dict)  # and the cell that says so
    options: StepOptions = field(default_factory=StepOptions)


def gather_steps(notebook: Notebook, values: Mapping[str, Any] | None = None) -> Gathered:
    """Gather a notebook's cells; `values` replace those of parameters. Raises InvalidNotebook, with all that
    is wrong with single cells, or with the order of the steps."""
    read = [_read_cell(cell) for cell in notebook.cells]
    refuse([each for each in read if isinstance(each, InvalidNotebook)])
    special: dict[Kind, list[Code]] = {kind: [] for kind in (*_PRELUDE, "pipeline-metrics")}
    steps: dict[str, _Step] = {}
    warnings: list[str] = []
    current: Kind | tuple[str, ...] | None = None  # what an untagged cell joins
    for tags, code in (each for each in read if not isinstance(each, InvalidNotebook)):
        warnings += [
            f"cell {code.cell}: the tag {tag!r} is not known and is left out" for tag in tags.unknown
        ]
        if tags.kind == "skip" or not code.text.strip():
            continue
        if tags.kind is not None or tags.steps:
            current = tags.kind or tags.steps
        elif not isinstance(current, tuple):
            current = _joined(current, code, steps)
        if isinstance(current, str):
            special[current].append(code)
            continue
        for name in current or ():
            step = steps.setdefault(name, _Step(first_cell=code.cell))
            step.cells.append(code)
            step.after |= dict.fromkeys(tags.after, code.cell)
            step.options = merge_options(tags.options, step.options)
    if not steps:
        raise InvalidNotebook(
            str(notebook.path),
            "it has no step",
            hint=f"tag a cell: `echelon notebook tag {quote(str(notebook.path))} CELL step:train`",
        )
    defaults = read_tag_list(notebook.about.step_tags, "steps_defaults of the notebook's metadata")
    refuse(list(_settle_order(steps)))
    parameters, cells = replace_values(special["pipeline-parameters"], values or {})
    ordered = [
        StepCells(
            name=name,
            cells=tuple(steps[name].cells),
            after=tuple(steps[name].after),
            options=merge_options(steps[name].options, defaults.options),
        )
        for name in _in_order(steps)
    ]
    return Gathered(
        steps=tuple(ordered),
        prelude=(*special["imports"], *cells, *special["functions"]),
        parameters=parameters,
        metrics=tuple(dict.fromkeys(_metric_names(special["pipeline-metrics"]))),
        warnings=tuple(warnings),
    )


def _read_cell(cell: Cell) -> tuple[CellTags, Code] | InvalidNotebook:
    """The tags of a cell and its code, or what is wrong with it whatever the others are."""
    place = CellLine(cell=cell.number)
    try:
        tags = read_tags(cell)
        if tags.kind == "skip" or not cell.text.strip():
            return tags, Code(cell=cell.number, text=cell.text)
        if tags.kind is not None and tags.steps:
            problem = f"it is tagged both {tags.kind} and step:{tags.steps[0]}"
            return InvalidNotebook(place, problem, hint="keep one of them")
        return tags, Code(cell=cell.number, text=plain_code(cell.text, place))
    except InvalidNotebook as error:
        return error


def _joined(current: Kind | None, code: Code, steps: dict[str, _Step]) -> Kind | tuple[str, ...]:
    """What an untagged cell belongs to that does not follow a step's cell."""
    if current == "pipeline-metrics" or (current == "pipeline-parameters" and _only_assigns(code)):
        return current
    if _only_defines(code):
        return "functions" if current == "functions" else "imports"
    return (next(reversed(steps)),) if steps else (START,)


def _only_assigns(code: Code) -> bool:
    return all(isinstance(node, ast.Assign | ast.AnnAssign) for node in ast.parse(code.text).body)


def _only_defines(code: Code) -> bool:
    """Whether a cell may run in every step: it imports, defines, and names constants."""
    defining = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass)
    for node in ast.parse(code.text).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (isinstance(node, defining) or told or (value is not None and _is_constant(value))):
            return False
    return True


def _is_constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False
    return not isinstance(node, ast.List | ast.Dict | ast.Set)  # what steps can change belongs to a step


def _settle_order(steps: Mapping[str, _Step]) -> Iterator[InvalidNotebook]:
    """Let steps come after `start`; gives every tag that names no step to come after."""
    for name, step in steps.items():
        for before, cell in step.after.items():
            if before in steps and before != name:
                continue
            near = difflib.get_close_matches(before, steps, n=1)
            known = ", ".join(each for each in steps if each != name) or "none"
            hint = (
                f"did you mean prev:{near[0]}?" if near and near[0] != name else f"the other steps: {known}"
            )
            problem = "cannot come after itself" if before == name else "is not a step"
            yield InvalidNotebook(CellLine(cell=cell), f"prev:{before}: {before!r} {problem}", hint=hint)
        if START in steps and name != START and not step.after:
            step.after[START] = step.first_cell


def _in_order(steps: Mapping[str, _Step]) -> Iterable[str]:
    """Every step after those it comes after, and otherwise in the notebook's order; raises InvalidNotebook
    for a circle.
    """
    done: dict[str, None] = {}
    while len(done) < len(steps):
        ready = next((n for n, s in steps.items() if n not in done and all(b in done for b in s.after)), None)
        if ready is None:
            circle = _circle({n: list(s.after) for n, s in steps.items() if n not in done})
            raise InvalidNotebook(
                CellLine(cell=steps[circle[0]].first_cell),
                f"the steps wait for each other: {' after '.join([*circle, circle[0]])}",
                hint="take one of the prev: tags away",
            )
        done[ready] = None
    return done


def _circle(after: Mapping[str, Sequence[str]]) -> list[str]:
    path = [next(iter(after))]
    while True:
        following = next(name for name in after[path[-1]] if name in after)
        if following in path:
            return path[path.index(following) :]
        path.append(following)


def _metric_names(cells: Iterable[Code]) -> Iterable[str]:
    """The variables that the `pipeline-metrics` cell names, printed or alone on a line."""
    for code in cells:
        for node in (part for each in ast.parse(code.text).body for part in ast.walk(each)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                node.func.id = ""  # the function is not a metric
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id:
                yield node.id
