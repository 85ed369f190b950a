"""Which framework a script means, from its imports, read without importing anything.

Imports of the project's own files are followed, since a script often imports torch through a module of its
own."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

# By what is imported, the most telling first. Scripts that train with JAX may load their data with PyTorch or
# TensorFlow: its own libraries of networks and optimizers say so, and JAX alone does not.
_FRAMEWORKS = {
    "horovod": "horovod",
    "mpi4py": "mpi",
    "mpi4jax": "mpi",
    "flax": "jax",
    "optax": "jax",
    "haiku": "jax",
    "equinox": "jax",
    "torch": "torch",
    "lightning": "torch",
    "pytorch_lightning": "torch",
    "accelerate": "torch",
    "transformers": "torch",
    "deepspeed": "torch",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "jax": "jax",
    "xgboost": "xgboost",
}
_MOST_FILES = 200


def detect(source: bytes, roots: tuple[Path, ...] = ()) -> str:
    """The framework of a script: the most telling import found in it or in the project files it imports; else
    plain.

    `roots` are the folders in which the script's own modules are looked for; the first is the script's own.
    """
    found: set[str] = set()
    folder = roots[0] if roots else Path()
    unread: list[tuple[bytes, Path]] = [(source, folder)]
    seen: set[Path] = set()
    while unread and len(seen) < _MOST_FILES:
        for name, places in _imported_names(*unread.pop(), roots):
            top = name.partition(".")[0]
            if places is roots:
                found.add(top)
            for file in _own_files(name, places):
                if file not in seen:
                    seen.add(file)
                    unread.append((file.read_bytes(), file.parent))
    return next((framework for module, framework in _FRAMEWORKS.items() if module in found), "plain")


def _imported_names(
    source: bytes, folder: Path, roots: tuple[Path, ...]
) -> Iterator[tuple[str, tuple[Path, ...]]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a script's own invalid escapes are not ours to report
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # the script's own run will say what is wrong with it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, roots) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import starts from the folder its file lies in, one up for each further dot.
            places = (folder, *folder.parents)[node.level - 1 : node.level] if node.level else roots
            module = node.module or ""
            yield module, places
            yield from ((f"{module}.{alias.name}" if module else alias.name, places) for alias in node.names)


def _own_files(name: str, roots: tuple[Path, ...]) -> Iterator[Path]:
    relative = name.replace(".", "/")
    for root in roots:
        for candidate in (root / f"{relative}.py", root / relative / "__init__.py"):
            if relative and candidate.is_file():
                yield candidate
