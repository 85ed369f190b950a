"""What a step's process runs: the files of `beside/` with what they need, and the specification of a step."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import echelon
from echelon.function.values import cloudpickle_files
from echelon.notebook.analysis.dataflow import refuse_unordered
from echelon.notebook.analysis.flow import flow_of
from echelon.notebook.analysis.parameters import Code
from echelon.notebook.analysis.pipeline import Pipeline, Step
from echelon.notebook.beside.sources import Unordered, find_sources
from echelon.notebook.kept.folder import PipelineFolder, published
from echelon.values import frozen

_DEFINES = re.compile(r"\b(def|class|lambda)\b")
_BY_TEXT = {"globals", "locals", "vars", "eval", "exec", "get_ipython"}
_BESIDE = (
    "__init__", "alike", "changes", "keras", "options", "outputs", "pickling", "pod", "shell",
    "state", "step", "store",
)  # fmt: skip
_ENTRY = '''"""Runs one step of a notebook. Written by echelon: change the notebook, not this file."""

import json
import os
import sys

here = os.path.dirname(os.path.realpath(__file__))
sys.path[0] = os.path.join(here, "lib")
from echelon.notebook.beside.step import main

# A notebook may import echelon itself: these few files of it must not stand in its way.
for name in [name for name in sys.modules if name.partition(".")[0] == "echelon"]:
    del sys.modules[name]
del sys.path[0]
sys.path.append(os.path.join(here, "figures"))
with open(os.path.join(here, sys.argv[1]), encoding="utf-8") as file:
    specification = json.load(file)
specification.update(json.loads(sys.argv[2]) if sys.argv[2:] else {}, here=here)
del sys.argv[1:]
sys.exit(main(specification))
'''


def program_files() -> dict[str, bytes]:
    """What all steps run."""
    package = Path(echelon.__file__).parent
    files: dict[str, bytes] = {"step.py": _ENTRY.encode()}
    for name in ("echelon", "echelon/codecs", "echelon/notebook"):
        files[f"lib/{name}/__init__.py"] = b""
    for name in ("writing", "parsing"):
        files[f"lib/echelon/codecs/{name}.py"] = (package / "codecs" / f"{name}.py").read_bytes()
    beside = package / "notebook" / "beside"
    for name in _BESIDE:
        files[f"lib/echelon/notebook/beside/{name}.py"] = (beside / f"{name}.py").read_bytes()
    files["figures/_echelon_figures.py"] = (beside / "_echelon_figures.py").read_bytes()
    return files | cloudpickle_files("lib")


def write_program(folder: PipelineFolder) -> None:
    """Write what all steps run."""
    for name, content in program_files().items():
        path = folder.program / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@frozen
class Sources:
    """Where the variables of a step come from: the step and the entry of each, and its digest."""

    entries: Mapping[str, Mapping[str, str]]
    digests: Mapping[str, str]


def sources_of(pipeline: Pipeline, step: Step, folder: PipelineFolder) -> Sources:
    """Choose among what the steps before have handed on; raises InvalidNotebook if two that are not ordered
    did so with different values."""
    there = {name: published(folder, name).get("names", {}) for name in step.before}
    before = {each.name: each.before for each in pipeline.steps}
    wanted = [*step.flow.inputs, *step.flow.perhaps]
    try:
        entries, digests = find_sources(step.name, wanted, step.flow.read_later, before, there)
    except Unordered as error:
        raise refuse_unordered(step.name, error) from None
    return Sources(entries=entries, digests=digests)


def specification(
    pipeline: Pipeline, step: Step, folder: PipelineFolder, sources: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """All that a step's process must know; `sources` are the step and the entry of each variable."""
    notebook = pipeline.notebook.path.absolute()
    deferred = step.size.framework == "tensorflow" and step.size.workers > 1
    distributed = [each.size for each in pipeline.steps if each.size.workers > 1 or each.size.coordinated]
    return {
        "run": folder.name,
        "step": step.name,
        "folder": str(folder.path),
        "notebook": str(notebook),
        "search": [str(notebook.parent)],
        "prelude": [{"cell": code.cell, "text": code.text} for code in pipeline.prelude],
        "repeats": list(step.flow.repeats),
        "cells": [{"cell": code.cell, "text": code.text} for code in step.cells],
        # Functions come as values; their lines are for tracebacks, and for what compiles them.
        "defining": [{"cell": code.cell, "text": code.text} for code in _defining(pipeline, step)],
        "inputs": {name: dict(source) for name, source in sources.items()},
        "outputs": list(step.flow.read_later),
        "metrics": list(pipeline.metrics),
        "calls": _calls(pipeline, step) if deferred else {},
        "deferred": deferred,
        "coordinated": step.size.coordinated,
        "legacy_keras": any(size.framework == "tensorflow" for size in distributed),
    }


def key_of(
    pipeline: Pipeline,
    step: Step,
    specified: Mapping[str, Any],
    digests: Mapping[str, str],
    surroundings: Sequence[object],
) -> str:
    """The digest of all that a step's result depends on, so far as echelon can see it: of the parameters only
    those that it may read. `surroundings` are what the caller knows of files and of the Python.
    """
    told = {name: specified[name] for name in ("repeats", "cells", "outputs", "metrics")}
    of_parameters = {each.cell for each in pipeline.parameters}
    prelude = [code.text for code in pipeline.prelude if code.cell not in of_parameters]
    size = [step.size.workers, step.size.parameter_servers, step.size.framework]
    parameters = _parameters_of(pipeline, step, prelude)
    content = [told, prelude, parameters, size, sorted(digests.items()), surroundings]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()


def _parameters_of(pipeline: Pipeline, step: Step, prelude: Sequence[str]) -> dict[str, Any]:
    """The parameters whose names occur in what a step may run: its cells, the rest of the prelude, and
    functions of the steps before. All of them where code may find names by their text.
    """
    defining = _defining(pipeline, step)
    texts = [*prelude, *(code.text for code in (*step.cells, *defining))]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    values = {each.name: pipeline.values.get(each.name, each.value) for each in pipeline.parameters}
    if words & _BY_TEXT:
        return values
    return {name: value for name, value in values.items() if name in words}


def _defining(pipeline: Pipeline, step: Step) -> list[Code]:
    """The cells of steps before that may define functions and classes."""
    before = (code for each in pipeline.steps if each.name in step.before for code in each.cells)
    return [code for code in before if _DEFINES.search(code.text)]


def _calls(pipeline: Pipeline, step: Step) -> dict[str, list[str]]:
    """What is read when a name is called: of functions and classes of the prelude and of all steps before."""
    codes = [
        *pipeline.prelude,
        *(code for each in pipeline.steps if each.name in step.before for code in each.cells),
        *step.cells,
    ]
    flow = flow_of(codes)
    found = {}
    for name in {*flow.calls, *flow.holds}:
        behind: set[str] = set()
        unseen = {name}
        while unseen:
            each = unseen.pop()
            new = flow.calls.get(each, frozenset()) | flow.holds.get(each, frozenset())
            unseen |= new - behind
            behind |= new
        found[name] = sorted(behind - {name})
    return found
