"""A compiled pipeline as files, what the command and the panel write: with the Python modules beside the
notebook that its cells import, so that they travel with its steps."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from echelon.errors import from_os_error
from echelon.model.settings import Settings
from echelon.notebook.analysis.pipeline import Pipeline
from echelon.notebook.export.pods import program_archive
from echelon.notebook.export.script import as_script
from echelon.notebook.export.tekton import RunClaim, as_tekton
from echelon.values import frozen

_BOOLEANS_OF_SOME = frozenset("yYnN")  # Kubernetes' own reader takes them for true and false
Kind = Literal["tekton", "python"]
NEW_CLAIM = RunClaim()


def modules_beside(folder: Path, texts: Iterable[str]) -> dict[str, bytes]:
    """The files of all modules in a folder that these texts import, or that such modules import."""
    found: dict[str, bytes] = {}
    unread = [name for text in texts for name in _imported(text)]
    seen: set[str] = set()
    while unread:
        name = unread.pop()
        if name in seen:
            continue
        seen.add(name)
        for path in _files(folder, name):
            try:
                content = path.read_bytes()
            except OSError as error:
                raise from_os_error(error, path) from None
            found[path.relative_to(folder).as_posix()] = content
            unread += _imported(content.decode("utf-8", "replace"))
    return found


def _files(folder: Path, name: str) -> list[Path]:
    module, package = folder / f"{name}.py", folder / name
    if (package / "__init__.py").is_file():
        return sorted(path for path in package.rglob("*.py") if path.is_file())
    return [module] if module.is_file() else []


def _imported(text: str) -> Iterator[str]:
    """The first part of every name that is imported; none of a text that is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - none: a person reads it
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if text in _BOOLEANS_OF_SOME else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """One document for each object."""
    text = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )
    assert isinstance(text, str)
    return text


@frozen
class Compiled:
    """Files by their names, and what the user should know."""

    files: Mapping[str, str]
    notes: tuple[str, ...] = ()


def compiled(pipeline: Pipeline, kind: Kind, settings: Settings, volume: RunClaim = NEW_CLAIM) -> Compiled:
    """A pipeline for another engine; settings and volume are for Tekton."""
    if kind == "python":
        return Compiled(files={f"{pipeline.name}.py": as_script(pipeline)}, notes=pipeline.warnings)
    texts = [
        code.text for code in (*pipeline.prelude, *(code for step in pipeline.steps for code in step.cells))
    ]
    modules = modules_beside(pipeline.notebook.path.absolute().parent, texts)
    exported = as_tekton(pipeline, settings, volume, program_archive(modules))
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
