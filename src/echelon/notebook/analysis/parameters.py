"""The parameters of a pipeline: constants that its `pipeline-parameters` cell names, and their values for a
run."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from echelon.notebook.analysis.cells import CellLine, InvalidNotebook
from echelon.notebook.beside.parameters import EXAMPLES, parse_text
from echelon.values import frozen


@frozen
class Code:
    """A cell's code in plain Python, with the line numbers of the cell."""

    cell: int
    text: str


@frozen
class Parameter:
    """A name that the `pipeline-parameters` cell gives a value; `required` if it has none."""

    name: str
    value: Any = None
    annotation: str = ""
    required: bool = False
    cell: int = 0


def replace_values(
    cells: Sequence[Code], values: Mapping[str, Any]
) -> tuple[tuple[Parameter, ...], tuple[Code, ...]]:
    """The parameters, and their cells with the given values in place."""
    found: dict[str, Parameter] = {}
    changed = []
    for code in cells:
        tree = ast.parse(code.text)
        for node in tree.body:
            where = CellLine(cell=code.cell, line=node.lineno)
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not all(
                isinstance(target, ast.Name) for target in targets
            ):
                hint = "as in lr = 0.01 or epochs: int = 3; give it a cell of its own"
                raise InvalidNotebook(where, "a parameter's cell names constants only", hint=hint)
            for target in targets:
                assert isinstance(target, ast.Name)
                found[target.id] = _parameter(node, target.id, where, code.cell)
            chosen = [target.id for target in targets if isinstance(target, ast.Name) and target.id in values]
            if chosen:
                node.value = ast.copy_location(ast.parse(repr(values[chosen[0]]), mode="eval").body, node)
        changed.append(replace(code, text=_with_lines(tree, code.text)) if values else code)
    check_names(found, values)
    return tuple(found.values()), tuple(changed)


def _parameter(node: ast.Assign | ast.AnnAssign, name: str, where: CellLine, cell: int) -> Parameter:
    annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
    if node.value is None:
        return Parameter(name=name, annotation=annotation, required=True, cell=cell)
    try:
        value = ast.literal_eval(node.value)
    except ValueError:
        hint = f"compute it in a step, or write the value; --param {name}=VALUE changes it for a run"
        raise InvalidNotebook(where, f"the parameter {name!r} is not a constant", hint=hint) from None
    return Parameter(name=name, value=value, annotation=annotation, cell=cell)


def check_names(found: Mapping[str, Parameter], values: Mapping[str, Any]) -> None:
    """Raise InvalidNotebook for a value of no parameter."""
    for name in values:
        if name not in found:
            near = difflib.get_close_matches(name, found, n=1)
            known = ", ".join(found) or "there is none; tag a cell pipeline-parameters"
            hint = f"did you mean {near[0]}?" if near else f"the parameters are {known}"
            raise InvalidNotebook(f"--param {name}", "the notebook has no such parameter", hint=hint)


def _with_lines(tree: ast.Module, text: str) -> str:
    """The statements on the lines that they began on."""
    lines = [""] * (text.count("\n") + 1)
    for node in tree.body:
        at = node.lineno - 1
        lines[at] = f"{lines[at]}; {ast.unparse(node)}" if lines[at] else ast.unparse(node)
    return "\n".join(lines)


def parse_parameter(parameter: Parameter, text: str) -> Any:
    """A value given as text, of the type that the notebook's own value has; raises InvalidNotebook."""
    kind = kind_of(parameter)
    if text.strip() == "None" and _may_be_none(parameter):
        return None
    try:
        return parse_text(kind, text)
    except ValueError as error:
        own = "" if parameter.required else f" (the notebook has {parameter.value!r})"
        raise InvalidNotebook(
            f"--param {parameter.name}",
            f"{error}{own}",
            hint=f"give a value of type {kind}, such as {EXAMPLES[kind]}, or change cell {parameter.cell}",
        ) from None


def _may_be_none(parameter: Parameter) -> bool:
    """Whether the annotation says so: `int | None`, `Optional[int]`."""
    return "None" in parameter.annotation or "Optional" in parameter.annotation


def kind_of(parameter: Parameter) -> str:
    """The type that a parameter's values have."""
    if parameter.annotation == "float" and type(parameter.value) is int:  # lr: float = 1
        return "float"
    return (
        type(parameter.value).__name__ if parameter.value is not None else parameter.annotation or "NoneType"
    )


def given_values(known: Sequence[Parameter], texts: Mapping[str, str]) -> dict[str, Any]:
    """The values that `--param NAME=TEXT` gives, checked against the notebook's own."""
    by_name = {parameter.name: parameter for parameter in known}
    check_names(by_name, texts)
    for parameter in known:
        if parameter.required and parameter.name not in texts:
            raise InvalidNotebook(
                CellLine(cell=parameter.cell),
                f"the parameter {parameter.name!r} has no value",
                hint=f"--param {parameter.name}=VALUE",
            )
    return {name: parse_parameter(by_name[name], text) for name, text in texts.items()}
