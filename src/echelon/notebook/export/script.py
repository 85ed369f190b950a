"""A pipeline as one plain Python script, which needs no echelon: prelude, steps, metrics. Pure.

In a pipeline, a step sees nothing of a step that does not come before it. In a script everything is seen by
what follows, so that steps which read a variable stand before unordered ones that change it."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Sequence
from importlib.resources import files

from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.analysis.flow import flow_of
from echelon.notebook.analysis.magics import OWN
from echelon.notebook.analysis.parameters import Code
from echelon.notebook.analysis.pipeline import Pipeline, Step

# One worker alone, unless the environment of the script says otherwise.
_ALONE = {
    "ECHELON_RANK": "0",
    "ECHELON_RANKS": "1",
    "ECHELON_WORKER": "0",
    "ECHELON_WORKERS": "1",
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


def as_script(pipeline: Pipeline) -> str:
    """The script's text; raises InvalidNotebook, naming the cell, for what a script cannot do."""
    steps = _ordered(pipeline)
    codes = [*pipeline.prelude, *(code for step in steps for code in step.cells)]
    futures: dict[str, None] = {}
    texts = {id(code): _without_futures(code, futures) for code in codes}
    for code in codes:
        _check(code, texts[id(code)])
    parts = [_heading(pipeline), *futures, *_surroundings(pipeline, codes)]
    parts += [f"# cell {code.cell}\n{texts[id(code)]}" for code in pipeline.prelude]
    for step in steps:
        parts += [f"# step {step.name}, cell {code.cell}\n{texts[id(code)]}" for code in step.cells]
    parts += ["\n".join(f'print("{name}:", {name})' for name in pipeline.metrics)]
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _heading(pipeline: Pipeline) -> str:
    lines = [
        f"The notebook {pipeline.notebook.path.name} as a script, written by `echelon notebook compile`."
    ]
    many = [step for step in pipeline.steps if step.size.workers > 1 or step.size.coordinated]
    if many:
        told = ", ".join(f"{step.name} on {step.size.workers} workers" for step in many)
        lines += [
            "",
            f"The notebook runs {told}. Here all steps run on the worker that starts the",
            f"script: one alone, or with `echelon run -n {many[0].size.workers}` each of several.",
        ]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}\n"""' if many else f'"""{text}"""'


def _surroundings(pipeline: Pipeline, codes: Iterable[Code]) -> list[str]:
    """What a notebook has and a script has not: magics, `display`, the variables of a worker."""
    names = {
        node.id for code in codes for node in ast.walk(ast.parse(code.text)) if isinstance(node, ast.Name)
    }
    parts = []
    if any(step.size.workers > 1 for step in pipeline.steps):
        lines = "\n".join(f'os.environ.setdefault("{name}", "{value}")' for name, value in _ALONE.items())
        parts.append(f"import os\n\n{lines}")
    if any(name.startswith(OWN) for name in names):
        source = (files("echelon.notebook.beside") / "shell.py").read_text("utf-8")
        source = source.replace("from __future__ import annotations\n", "")
        body = textwrap.indent(source.rstrip("\n"), "    ", lambda line: bool(line.strip()))
        parts.append(f'def {OWN}install():\n{body}\n\n    install(Path("pip.lock"))\n\n\n{OWN}install()')
    if "display" in names:
        parts.append("display = print")
    return parts


def _without_futures(code: Code, futures: dict[str, None]) -> str:
    """A cell without `from __future__ import`, which belongs at the top of a script."""
    lines = code.text.split("\n")
    for node in ast.parse(code.text).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            futures[ast.unparse(node)] = None
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            if lines[first][: node.col_offset].strip() or lines[last][node.end_col_offset :].strip("; \t"):
                hint = "give `from __future__` a line of its own"
                raise InvalidNotebook(
                    f"cell {code.cell}, line {node.lineno}", "it shares its line", hint=hint
                )
            lines[first : last + 1] = [""] * (last - first + 1)
    return "\n".join(lines)


def _check(code: Code, text: str) -> None:
    try:
        compile(text, f"cell {code.cell}", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise InvalidNotebook(
            f"cell {code.cell}, line {error.lineno}",
            f"a script cannot do this: {error.msg}",
            hint="await inside a function, and call it with asyncio.run",
        ) from None


def _ordered(pipeline: Pipeline) -> Sequence[Step]:
    """The steps in an order in which none sees a change of a step that does not come before it."""
    flows = {step.name: flow_of(step.cells) for step in pipeline.steps}
    first: dict[str, set[str]] = {step.name: set(step.before) for step in pipeline.steps}
    for reader in pipeline.steps:
        wanted = {*reader.flow.inputs, *reader.flow.perhaps}
        for changer in pipeline.steps:
            ordered = changer.name in reader.before or reader.name in changer.before or reader is changer
            if not ordered and wanted & flows[changer.name].changes:
                first[changer.name].add(reader.name)
    left, found = list(pipeline.steps), list[Step]()
    while left:
        ready = next((step for step in left if first[step.name] <= {each.name for each in found}), None)
        if ready is None:
            names = " and ".join(step.name for step in left[:2])
            raise InvalidNotebook(
                f"cell {left[0].cells[0].cell}",
                f"steps {names} change variables that the other reads, and neither comes before the other",
                hint=f"give one of them a prev: tag, such as prev:{left[0].name}",
            )
        found.append(ready)
        left.remove(ready)
    return found
