"""A compiled pipeline as files: what the command and the panel write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from echelon.errors import from_os_error
from echelon.notebook.analysis.pipeline import Pipeline
from echelon.notebook.export.modules import modules_beside
from echelon.notebook.export.pods import program_archive
from echelon.notebook.export.script import as_script
from echelon.notebook.export.tekton import Wishes, as_tekton
from echelon.notebook.export.text import as_yaml
from echelon.values import frozen

Kind = Literal["tekton", "python"]


@frozen
class Compiled:
    """Files by their names, and what the user should know."""

    files: Mapping[str, str]
    notes: tuple[str, ...] = ()


def compiled(pipeline: Pipeline, kind: Kind, wishes: Wishes) -> Compiled:
    """A pipeline for another engine; `wishes` are for Tekton."""
    if kind == "python":
        return Compiled(files={f"{pipeline.name}.py": as_script(pipeline)}, notes=pipeline.warnings)
    texts = [
        code.text for code in (*pipeline.prelude, *(code for step in pipeline.steps for code in step.cells))
    ]
    modules = modules_beside(pipeline.notebook.path.absolute().parent, texts)
    exported = as_tekton(pipeline, wishes, program_archive(modules))
    files = {
        f"{pipeline.name}-needed.yaml": as_yaml(exported.needed),
        f"{pipeline.name}-run.yaml": as_yaml([exported.run]),
    }
    return Compiled(files=files, notes=(*pipeline.warnings, *exported.notes))


def write_files(files: Mapping[str, str], into: Path) -> list[Path]:
    """Write them into a folder; returns where they are."""
    written = []
    try:
        into.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (into / name).write_text(text, encoding="utf-8")
            written.append(into / name)
    except OSError as error:
        raise from_os_error(error, into) from None
    return written
