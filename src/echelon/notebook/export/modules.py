"""The Python modules beside a notebook that its cells import, so that they travel with its steps."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from echelon.errors import from_os_error


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
