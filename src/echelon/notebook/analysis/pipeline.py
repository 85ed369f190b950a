"""A notebook as a Pipeline: its steps, their variables and what they need to run. Pure, but for reading the
file, and the version of pandas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from echelon.frameworks.detect import detect
from echelon.model.job import suggest_name
from echelon.notebook.analysis.cells import InvalidNotebook, Notebook, read_notebook
from echelon.notebook.analysis.dataflow import StepFlow, find_dataflow
from echelon.notebook.analysis.parameters import Code, Parameter, given_values
from echelon.notebook.analysis.steps import Gathered, gather_steps
from echelon.notebook.analysis.tags import StepOptions
from echelon.notebook.analysis.unlike import find_differences
from echelon.values import frozen

_WORKERS = 2  # of a distributed step that names no number
_LITERAL_COUNT = re.compile(r"\b(?:num_workers|n_workers|world_size|num_replicas)\s*=\s*(\d+)\b")


@frozen
class Size:
    """How many processes a step has, of what kind: what its tags leave open is decided."""

    workers: int = 1
    parameter_servers: int = 0
    framework: str = "plain"

    @property
    def coordinated(self) -> bool:
        """Whether a chief runs the cells, and the workers serve it."""
        return self.parameter_servers > 0


@frozen
class Step:
    """One step of a pipeline."""

    name: str
    cells: tuple[Code, ...]
    after: tuple[str, ...]
    before: frozenset[str]  # all steps that come before it
    flow: StepFlow
    options: StepOptions = field(default_factory=StepOptions)
    size: Size = field(default_factory=Size)

    @property
    def gpus(self) -> int:
        """How many each worker has."""
        return self.options.settings.gpus or 0


@frozen
class Pipeline:
    """What runs: steps in an order in which they can."""

    name: str
    notebook: Notebook
    steps: tuple[Step, ...]
    prelude: tuple[Code, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)  # of parameters that were given
    metrics: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_pipeline(path: Path, parameters: Mapping[str, str] | None = None) -> Pipeline:
    """Read a notebook as a pipeline; raises InvalidNotebook, naming the cell. `parameters` are values as
    text; without them, one that has no value is none yet."""
    return pipeline_of(read_notebook(path), parameters)


def pipeline_of(notebook: Notebook, parameters: Mapping[str, str] | None = None) -> Pipeline:
    """The same of a notebook that was read."""
    gathered = gather_steps(notebook)
    values: dict[str, Any] = {}
    if parameters is not None:
        values = given_values(gathered.parameters, parameters)
        gathered = gather_steps(notebook, values) if values else gathered
    flow = find_dataflow(gathered)
    views = _tables_share_memory(gathered)
    warnings = [*gathered.warnings, *flow.warnings, *find_differences(gathered, flow.before, views=views)]
    steps = []
    for each in gathered.steps:
        text = "\n".join(code.text for code in (*gathered.prelude, *each.cells))
        size = size_of(each.options, text)
        if size.workers > 1:
            warnings += _notes_on_size(each.name, each.options, size, each.cells)
        steps.append(
            Step(
                name=each.name,
                cells=each.cells,
                after=each.after,
                before=flow.before[each.name],
                flow=flow.steps[each.name],
                options=each.options,
                size=size,
            )
        )
    return Pipeline(
        name=name_of(notebook),
        notebook=notebook,
        steps=tuple(steps),
        prelude=gathered.prelude,
        parameters=gathered.parameters,
        values=values,
        metrics=gathered.metrics,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _tables_share_memory(gathered: Gathered) -> bool:
    """Whether the pandas of this environment, which the steps probably have, is one before 3."""
    codes = [*gathered.prelude, *(code for step in gathered.steps for code in step.cells)]
    if not any("pandas" in code.text for code in codes):
        return False
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pandas").startswith(("0.", "1.", "2."))
    except PackageNotFoundError:
        return False


def name_of(notebook: Notebook) -> str:
    """The pipeline's name, of which the names of its runs are made. A run's name begins with a letter;
    01_model and 02_model are not to be one pipeline for that.
    """
    text = notebook.about.name or notebook.path.stem
    return suggest_name(text if text[:1].isalpha() else f"nb-{text}")


def size_of(options: StepOptions, text: str) -> Size:
    """How many processes the tags ask for; `text` is all code of the step."""
    if options.distribute is None:
        return Size()
    workers = int(options.settings.workers or _WORKERS)  # a tag has one number
    if options.distribute == "parameter-server":
        return Size(workers=workers, parameter_servers=options.parameter_servers or 1, framework="tensorflow")
    frameworks = {"mirrored": "tensorflow", "torch": "torch"}
    framework = frameworks.get(options.distribute) or detect(text.encode())
    return Size(workers=workers, framework=framework)


def step_named(pipeline: Pipeline, name: str) -> Step:
    """A step by its name; raises InvalidNotebook, with those that there are."""
    for step in pipeline.steps:
        if step.name == name:
            return step
    known = ", ".join(step.name for step in pipeline.steps)
    raise InvalidNotebook(f"step {name}", "the notebook has no such step", hint=f"the steps are {known}")


def _notes_on_size(name: str, options: StepOptions, size: Size, cells: tuple[Code, ...]) -> list[str]:
    notes = []
    if options.settings.workers is None:
        notes.append(f"step {name!r} names no number of workers and gets {size.workers}; workers:N says it")
    notes += [
        f"cell {code.cell} says {number} workers, the tag of step {name!r} {size.workers}; "
        'int(os.environ["ECHELON_WORKERS"]) is always right'
        for code in cells
        for number in _LITERAL_COUNT.findall(code.text)
        if int(number) not in (size.workers, 0)
    ]
    return notes
