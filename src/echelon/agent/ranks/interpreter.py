"""The ranks' Python: which one it is, and which modules it has. It is run to find out, since it is not the
agent's own."""

from __future__ import annotations

import os
import re
import sys

from echelon.agent.loop import Loop
from echelon.agent.ranks.child import Child

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable, Iterable

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*\Z")
_ASK = "import sys, importlib.util as u; print(*[m for m in sys.argv[1:] if u.find_spec(m)])"


def find_modules(
    loop: Loop,
    children: dict[int, Callable[[int], object]],
    python: str,
    wanted: Iterable[str],
    env: dict[str, str],
    then: Callable[[set[str]], object],
) -> None:
    """Call `then` with those of the modules that this Python can import; with none, if it cannot be run."""
    output = bytearray()

    def on_data(stream: int, data: bytes) -> None:
        if stream == 1:
            output.extend(data)

    try:
        Child(
            loop,
            children,
            [python, "-c", _ASK, *wanted],
            env,
            on_data,
            lambda _code: then(set(output.decode("ascii", "replace").split())),
        )
    except OSError:
        then(set())


def is_python(program: str) -> bool:
    """Whether a program is a Python, by its name."""
    return _PYTHON.match(os.path.basename(program)) is not None


def find_python(program: str, path: str) -> str:
    """The Python that runs a rank whose command begins with `program`: `program` itself, or the one that its
    first line names (torchrun's, for instance), or `python3` on the PATH.
    """
    if is_python(program):
        return program
    found = _find(program, path)
    if found is not None:
        try:
            with open(found, "rb") as file:
                first = file.readline(512)
        except OSError:
            first = b""
        parts = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
        for part in parts[:2]:  # the second, where the first is /usr/bin/env
            if is_python(part):
                return part
    return "python3" if _find("python3", path) else sys.executable or "python3"


def _find(program: str, path: str) -> str | None:
    if "/" in program:
        return program
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder, program)
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    return None


def has_installed(module: str) -> bool:
    """Whether a package is installed beside the Python that runs this; what lies in a project does not count.

    An agent looks at the folders itself: it has no others than the standard library in its module path.
    """
    from importlib.machinery import PathFinder

    prefix = os.path.dirname(os.path.dirname(sys.executable or ""))
    version = "python%d.%d" % sys.version_info[:2]
    folders = [
        os.path.join(prefix, *parts)
        for parts in (
            ("lib", version, "site-packages"),
            ("lib64", version, "site-packages"),
            ("lib", version, "dist-packages"),  # Debian's names
            ("lib", "python3", "dist-packages"),
            ("local", "lib", version, "dist-packages"),
        )
    ]
    try:
        spec = PathFinder.find_spec(module.partition(".")[0], folders)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None  # a folder without code has none
