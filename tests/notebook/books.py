"""Notebooks for tests: made of cells, run inside the test's own process or in order in one namespace."""

from __future__ import annotations

import builtins
import json
import linecache
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from echelon.notebook.analysis.pipeline import Pipeline, read_pipeline
from echelon.notebook.beside import shell
from echelon.notebook.beside.step import _Step
from echelon.notebook.execution.program import sources_of, specification
from echelon.notebook.kept.folder import PipelineFolder

Cells = Sequence[tuple[str, str]]


def write_book(path: Path, cells: Cells, metadata: dict[str, Any] | None = None) -> Path:
    """A notebook; each cell is its tags, separated by blanks, and its text."""
    made = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "execution_count": None,
            "metadata": {"tags": tags.split()} if tags else {},
            "outputs": [],
            "source": text.splitlines(keepends=True),
        }
        for number, (tags, text) in enumerate(cells)
    ]
    path.write_text(
        json.dumps({"cells": made, "metadata": metadata or {}, "nbformat": 4, "nbformat_minor": 5})
    )
    return path


def read_book(folder: Path, cells: Cells, parameters: dict[str, str] | None = None, **more: Any) -> Pipeline:
    return read_pipeline(write_book(folder / "book.ipynb", cells, **more), parameters)


def new_folder(path: Path) -> PipelineFolder:
    folder = PipelineFolder(path)
    for each in (folder.work, folder.values, folder.program):
        each.mkdir(parents=True)
    folder.secret.touch(0o600)
    folder.secret.write_bytes(secrets.token_bytes(32))
    return folder


def run_inside(pipeline: Pipeline, folder: PipelineFolder) -> dict[str, int]:
    """Every step with the real code of a step's process, one after the other, in this process."""
    codes = {}
    for step in pipeline.steps:
        sources = sources_of(pipeline, step, folder)
        specified = specification(pipeline, step, folder, sources.entries)
        output = folder.results(step.name)
        output.mkdir(parents=True)
        here = (sys.stdout, sys.stderr, sys.modules["__main__"], Path.cwd(), dict(vars(builtins)))
        path, finders, environment = list(sys.path), list(sys.meta_path), dict(os.environ)
        os.chdir(folder.work)
        sys.path.insert(0, str(folder.work))
        shell.install(folder.path / "pip.lock")
        linecache.clearcache()  # another process knows no text of an earlier step, and no class of it
        pickles = cloudpickle.cloudpickle
        pickles._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
        pickles._DYNAMIC_CLASS_TRACKER_BY_CLASS.clear()
        try:
            codes[step.name] = _Step(specified, output, output).run()
        finally:
            sys.stdout, sys.stderr, sys.modules["__main__"] = here[:3]
            os.chdir(here[3])
            sys.path[:], sys.meta_path[:] = path, finders
            os.environ.clear()
            os.environ.update(environment)
            for name in set(vars(builtins)) - set(here[4]):
                delattr(builtins, name)
        if codes[step.name]:
            break
    return codes


def run_in_order(cells: Cells, work: Path) -> dict[str, Any]:
    """All cells in one namespace, as a notebook does it; returns the namespace."""
    namespace: dict[str, Any] = {"__name__": "in_order"}
    here = Path.cwd()
    work.mkdir(parents=True)
    os.chdir(work)
    try:
        for _tags, text in cells:
            exec(text, namespace)
    finally:
        os.chdir(here)
    return namespace
