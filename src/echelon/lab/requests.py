"""What the panel sends, as values, and the notebook that a path means. Pure."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from echelon.notebook.analysis.tags import Choice
from echelon.values import frozen


@frozen
class Document:
    """A notebook as it is in the editor, saved or not."""

    path: str
    document: dict[str, Any]


@frozen
class Tagging:
    """A cell, what was chosen for it, and the tags of all cells, by number."""

    cell: int
    tags: dict[int, tuple[str, ...]]
    choice: Choice


@frozen
class RunRequest:
    """A run of a saved notebook: the values of parameters as text; `start` is the step to continue from.
    `image` and what follows it are for the cluster; where they are None, the command's defaults hold."""

    path: str
    parameters: dict[str, str] = field(default_factory=dict)
    in_cluster: bool = False
    no_gpus: bool = False
    start: str | None = None
    image: str | None = None
    volume: str | None = None
    context: str | None = None
    namespace: str | None = None


@frozen
class Compiling:
    """A saved notebook to be compiled, and what for; `image` and `namespace` are for Tekton."""

    path: str
    kind: Literal["tekton", "python"]
    parameters: dict[str, str] = field(default_factory=dict)
    image: str | None = None
    namespace: str | None = None


@frozen
class NotebookRun:
    """A notebook, one of its runs, and a step of that."""

    path: str
    name: str | None = None
    step: str | None = None


def within(root: Path, path: str) -> Path | None:
    """The notebook below the root that a path of the contents names; None if it leads elsewhere."""
    base = Path(os.path.abspath(root.expanduser()))  # noqa: PTH100 - links stay: Jupyter follows them too
    found = Path(os.path.abspath(base / path.lstrip("/")))  # noqa: PTH100
    is_one = found.suffix == ".ipynb" and "\0" not in path
    return found if is_one and found.is_relative_to(base) else None
