"""Where the steps of a pipeline run work: what differs between this machine and a cluster, and nothing else.

`execute` runs the steps, in the same way in every place."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from echelon.engines.base import Engine
from echelon.model.settings import Settings
from echelon.model.surroundings import Surroundings
from echelon.notebook.analysis.cells import looks_above
from echelon.notebook.analysis.pipeline import Pipeline, Step
from echelon.notebook.execution.asking import asked_for, local_settings
from echelon.notebook.execution.program import specification, write_program
from echelon.notebook.kept.cache import state_of
from echelon.notebook.kept.folder import PipelineFolder, files_in, link_project
from echelon.preparation.prepare import Prepared, prepare, settle_python
from echelon.values import frozen

Entries = Mapping[str, Mapping[str, str]]
Files = Mapping[str, tuple[int, int]]


class StepHost(Protocol):
    """What a place can do for the steps of one pipeline run. Several threads call it."""

    @property
    def caches(self) -> bool:
        """Whether results of earlier runs can be taken over there."""
        ...

    def has_room(self, steps: Sequence[Step]) -> bool:
        """Whether these steps may be at work at the same time, unless the user says so."""

    def open(self) -> None:
        """Have all there that steps need, before the first of them."""

    def runs_with(self, step: Step) -> str:
        """What runs a step's code: a Python, or an image."""

    def beside(self) -> str:
        """How the files beside the notebook stand; the same text for the same files."""

    def prepare(self, step: Step, run: str, entries: Entries) -> Prepared:
        """A step as a job, with all that travels; `entries` are where its variables are."""

    def files(self) -> Files:
        """The files of the working folder, as far as they are known here."""

    def settle(self, step: Step) -> None:
        """A step has ended: have here what is needed of it to continue."""

    def last_cell(self, step: Step) -> int | None:
        """The cell that a step was in when it ended, if that is known."""

    def close(self) -> str:
        """All is over: have the files of the steps here; returns which of them are not, and why."""


@frozen
class OnThisMachine:
    """Steps are processes that see the pipeline run's folder itself."""

    pipeline: Pipeline
    folder: PipelineFolder
    engine: Engine
    python: str
    base: Settings = field(default_factory=Settings)  # variables and secrets of all steps
    restarts: int = 0
    caches: bool = True
    memory: float = math.inf  # of the machine, in bytes

    def has_room(self, steps: Sequence[Step]) -> bool:
        """As many workers as there are cores, or as their limits allow."""
        asked = [asked_for(step) for step in steps]
        cpus, memory = sum(each for each, _ in asked), sum(each for _, each in asked)
        return cpus <= max(2, os.cpu_count() or 2) and memory <= self.memory

    def open(self) -> None:
        """Write what the steps run, and link what lies beside the notebook."""
        notebook = self.pipeline.notebook
        link_project(self.folder, notebook.path.absolute().parent, above=looks_above(notebook))
        write_program(self.folder)

    def runs_with(self, step: Step) -> str:  # noqa: ARG002 - as every place has it
        """The same Python for all steps."""
        return self.python

    def beside(self) -> str:
        """They are read where they are, by links."""
        return state_of(self.pipeline.notebook.path.absolute().parent, self.folder.path.absolute().parent)

    def prepare(self, step: Step, run: str, entries: Entries) -> Prepared:
        """A script in the working folder; its specification is in a file."""
        specified = self.folder.program.absolute() / f"{step.name}.json"
        told = specification(self.pipeline, step, self.folder, entries)
        specified.write_bytes(msgspec.json.encode(told))
        settings = replace(
            local_settings(step, self.engine),
            name=run,
            script=str(self.folder.program.absolute() / "step.py"),
            args=[str(specified)],
            python=self.python,
            results=str(self.folder.results(step.name).absolute()),
            restarts=self.restarts or None,
            env=dict(self.base.env or {}),
        )
        settings = replace(settings, secret=[*(settings.secret or ()), *(self.base.secret or ())] or None)
        surroundings = Surroundings(folder=self.folder.work.absolute(), environment=dict(os.environ))
        return prepare(settings, surroundings, self.engine.traits)

    def files(self) -> Files:
        """Those that there are."""
        return files_in(self.folder.work)

    def settle(self, step: Step) -> None:
        """Everything is here."""

    def last_cell(self, step: Step) -> int | None:
        """As the step's process has written it."""
        return last_cell_in(self.folder.results(step.name) / "at.json")

    def close(self) -> str:
        """Everything is here."""
        return ""


def last_cell_in(path: Path) -> int | None:
    """The cell that a step's process has written down as its last."""
    found = read_object(path).get("cell")
    return found if isinstance(found, int) else None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty if there is none."""
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def python_of(python: str | None) -> str:
    """The Python that runs the steps on this machine, as seen from the command's folder."""
    return settle_python(python, Surroundings(folder=Path.cwd(), environment=dict(os.environ)))
