"""An .ipynb file as values, and the one change that echelon makes to it: tags of a cell.

The file is nbformat's JSON (version 4). Cells are numbered from 1, texts included, as people count them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from shlex import quote
from typing import Any

from echelon.errors import EchelonError, InvalidJob, StateTrouble, from_os_error
from echelon.values import frozen

Tags = Mapping[int, tuple[str, ...]]  # of cells, by number
_BROKEN = "open it in Jupyter and save it again, or name another file"


@frozen
class CellLine:
    """A cell, or a line of it."""

    cell: int
    line: int | None = None

    def __str__(self) -> str:
        return f"cell {self.cell}" if self.line is None else f"cell {self.cell}, line {self.line}"


class InvalidNotebook(InvalidJob):
    """A notebook that cannot run; it says in which cell, and what to do."""

    def __init__(self, where: str | CellLine, problem: str, *, hint: str = "") -> None:
        EchelonError.__init__(self, f"{where}: {problem}", hint=hint)
        self.field, self.value = str(where), None
        self.problem = problem
        self.place = where if isinstance(where, CellLine) else None  # None: it is not of one cell


def refuse(problems: Sequence[InvalidNotebook]) -> None:
    """Raise the first of several problems, with the others, in the order of the cells: all can be mended at
    once."""
    if problems:
        first, *others = sorted(problems, key=lambda each: reading_order(each.place))
        first.others = tuple(others)
        raise first


def reading_order(place: CellLine | None) -> tuple[float, int]:
    """A key to sort places by: from the first line to the last, then those without a cell."""
    return (math.inf, 0) if place is None else (place.cell, place.line or 0)


@frozen
class Cell:
    """A code cell."""

    number: int
    text: str
    tags: tuple[str, ...] = ()


@frozen
class Volume:
    """A volume that the notebook's metadata names, as Kale writes it."""

    name: str
    kind: str  # pv, pvc, new_pvc or clone
    mount_point: str
    size: str = ""


@frozen
class About:
    """What `kubeflow_notebook` in the metadata says: Kale's settings of the whole pipeline."""

    name: str = ""
    description: str = ""
    image: str = ""
    volumes: tuple[Volume, ...] = ()
    step_tags: tuple[str, ...] = ()  # tags that every step has
    access_mode: str = ""  # of a volume that is made: rom, rwo or rwm
    storage_class: str = ""


@frozen
class Notebook:
    """A notebook's code cells and metadata; `document` is the file as it was read."""

    path: Path
    cells: tuple[Cell, ...]
    about: About = field(default_factory=About)
    document: Mapping[str, Any] = field(default_factory=dict)


def looks_above(notebook: Notebook) -> bool:
    """Whether a cell may read what lies beside the notebook's folder, as in `../data`."""
    return any("../" in cell.text for cell in notebook.cells)


def read_notebook(path: Path) -> Notebook:
    """Read a notebook; raises InvalidNotebook if it is none."""
    return notebook_of(_read(path), path)


def notebook_of(document: Mapping[str, Any], path: Path) -> Notebook:
    """The notebook of a document, which may differ from the file; raises InvalidNotebook if it is none."""
    _check(document, path)
    cells = [
        Cell(number=number, text=_text(cell.get("source", "")), tags=_tags(cell))
        for number, cell in enumerate(document["cells"], 1)
        if cell.get("cell_type") == "code"
    ]
    return Notebook(path=path, cells=tuple(cells), about=_about(document), document=document)


def write_tags(path: Path, number: int, change: Callable[[Tags], Tags]) -> Tags:
    """Change the tags of a cell, and of others with it: `change` is given those of all code cells, and says
    which change to what. The file is replaced at once."""
    from echelon.engines.durable import replace_file

    document = _read(path)
    cells = dict(enumerate(document["cells"], 1))
    if number not in cells:
        raise InvalidNotebook(
            CellLine(cell=number), "there is no such cell", hint=f"they are 1 to {len(cells)}"
        )
    if cells[number].get("cell_type") != "code":
        raise InvalidNotebook(
            CellLine(cell=number),
            "it holds no code",
            hint=f"`echelon notebook show {quote(str(path))}` lists the cells",
        )
    changed = change({at: _tags(cell) for at, cell in cells.items() if cell.get("cell_type") == "code"})
    for at, tags in changed.items():
        metadata = cells[at].setdefault("metadata", {})
        if tags:
            metadata["tags"] = list(tags)
        else:
            metadata.pop("tags", None)
    target = path.resolve()  # a link stays one: what it leads to is replaced
    mode = target.stat().st_mode
    try:
        replace_file(target, f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode())
    except OSError as error:
        hint = "make its folder one that you may write to, or tag a copy of the notebook elsewhere"
        raise StateTrouble(f"{path} cannot be written: {error.strerror or error}", hint=hint) from None
    target.chmod(mode)
    return changed


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        if not path.exists():
            raise InvalidNotebook(str(path), "there is no such file", hint="name an .ipynb file") from None
        raise from_os_error(error, path) from None
    except UnicodeDecodeError:
        raise InvalidNotebook(str(path), "it is not UTF-8", hint=_BROKEN) from None
    try:
        document = json.loads(text)
    except ValueError as error:
        hint = f"`echelon run {quote(str(path))}` runs a script" if path.suffix == ".py" else _BROKEN
        raise InvalidNotebook(str(path), f"it is not JSON: {error}", hint=hint) from None
    _check(document, path)
    assert isinstance(document, dict)
    return document


def _check(document: Any, path: Path) -> None:
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        hint = "open it in Jupyter and save it, which brings it to version 4"
        raise InvalidNotebook(str(path), "it is not a notebook of version 4", hint=hint)


def _text(source: Any) -> str:
    return source if isinstance(source, str) else "".join(map(str, source))


def _tags(cell: Mapping[str, Any]) -> tuple[str, ...]:
    tags = (cell.get("metadata") or {}).get("tags") or ()
    return tuple(str(tag).strip() for tag in tags)


def _about(document: Mapping[str, Any]) -> About:
    found = (document.get("metadata") or {}).get("kubeflow_notebook")
    if not isinstance(found, dict):
        return About()
    volumes = [
        Volume(
            name=str(each.get("name", "")),
            kind=str(each.get("type", "")),
            mount_point=str(each.get("mount_point", "")),
            size=f"{each.get('size', '')}{each.get('size_type', '')}",
        )
        for each in found.get("volumes") or ()
        if isinstance(each, dict)
    ]
    return About(
        name=str(found.get("pipeline_name") or ""),
        description=str(found.get("pipeline_description") or ""),
        image=str(found.get("base_image") or found.get("docker_image") or ""),
        volumes=tuple(volumes),
        step_tags=tuple(str(tag) for tag in found.get("steps_defaults") or ()),
        access_mode=str(found.get("volume_access_mode") or ""),
        storage_class=str(found.get("storage_class_name") or ""),
    )
