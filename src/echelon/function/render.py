"""The text of the script that stands for a function.

One readable file, which a traceback can point into, and which runs on Python 3.8 and newer as far as the
function itself does. It imports nothing of echelon.

The script finds its project by `ECHELON_PROJECT`, or else at its path when the script was written; it removes
its own folder from the search path, so that its name hides no library. Its own names begin with `_echelon_`.
What it defines for the function stands outside the `if __name__ == "__main__"`, so that processes that
Python's multiprocessing spawns (a data loader's) find it again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from echelon.function.definitions import STORED
from echelon.function.gather import RETURN, ScriptParts
from echelon.function.values import defined_in_script

VALUES = "values.pkl"  # beside the script
CELL = "the-cell.py"  # beside the script: the text of a cell, line by line as it is in the notebook
WRITER = "write-value.py"  # beside the script; no function has that name
BY_VALUE = "by_value"  # a folder beside the script, with cloudpickle in it


def render(
    gathered: ScriptParts,
    *,
    name: str,
    project: Path | None,
    folders: Sequence[str],
    elsewhere: Sequence[Path],
) -> str:
    """Write the script."""
    parts = [f'"""Runs {name}. Written by echelon: change the function, not this file."""\n']
    if gathered.annotations_as_text:
        parts.append("from __future__ import annotations\n")
    parts.append(_prepare(gathered, name, project, folders, elsewhere))
    if gathered.values:
        parts.append(_values())
    if gathered.imports:
        parts.append("".join(gathered.imports))
    parts += _grouped(gathered.pieces)
    parts.append(_return(name))
    start = "".join(f"    {line}\n" if line else "\n" for line in gathered.start.rstrip("\n").split("\n"))
    parts.append(f'if __name__ == "__main__":\n{start}')
    return "\n\n".join(parts)


def execute_cell() -> str:
    """The statements that execute the cell, as the script's own, so that all it defines is global there."""
    return f"""\
def _echelon_cell():  # the value of its last expression is what it returns
    import ast
    import os

    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), {CELL!r})
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body.pop()
        kept = ast.Assign(targets=[ast.Name("_echelon_value", ast.Store())], value=last.value)
        tree.body.append(ast.fix_missing_locations(ast.copy_location(kept, last)))
    return compile(tree, path, "exec")


_echelon_value = None
exec(_echelon_cell())
{RETURN}(_echelon_value)
"""


def _grouped(pieces: Sequence[str]) -> list[str]:
    """Pieces with consecutive constants in one group, without blank lines between them."""
    groups: list[str] = []
    after_a_constant = False
    for piece in pieces:
        is_constant = piece.count("\n") == 1 and not piece.startswith(("def ", "class ", "async "))
        if is_constant and after_a_constant:
            groups[-1] += piece
        else:
            groups.append(piece)
        after_a_constant = is_constant
    return groups


def _prepare(
    gathered: ScriptParts, name: str, project: Path | None, folders: Sequence[str], elsewhere: Sequence[Path]
) -> str:
    text = """\
def _echelon_prepare():
    import os
    import sys

    here = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == here:
        del sys.path[0]  # this file must not hide a library of its name
"""
    if gathered.by_value:
        major, minor = sys.version_info[:2]
        what = " and ".join(repr(label) for label in gathered.by_value)
        problem = (
            f"{name}: {what} came as bytecode of Python {major}.{minor}, for want of source; here is Python "
        )
        advice = f" (use {major}.{minor} on both sides, or write it with def in a file or a notebook cell)"
        text += f"""\
    if sys.version_info[:2] != ({major}, {minor}):
        sys.exit({problem!r} + "%d.%d" % sys.version_info[:2] + {advice!r})
    sys.path.insert(0, os.path.join(here, {BY_VALUE!r}))
"""
    if project is not None:
        problem = f"{name}: its project folder is not here: "
        text += f"""\
    project = os.environ.get("ECHELON_PROJECT") or {str(project)!r}
    if not os.path.isdir(project):
        sys.exit({problem!r} + project + " (ECHELON_PROJECT says where it is)")
    folders = {list(folders)!r}
    sys.path[:0] = [os.path.normpath(os.path.join(project, folder)) for folder in folders]
"""
    if elsewhere:
        text += f"    sys.path += {[str(folder) for folder in elsewhere]!r}  # outside the project\n"
    return f"{text}\n\n_echelon_prepare()\n"


def _return(name: str) -> str:
    return f"""\
def {RETURN}(value):  # among the results, as plain data
    import importlib.util
    import os

    here = os.path.dirname(os.path.realpath(__file__))
    spec = importlib.util.spec_from_file_location("_value_writer", os.path.join(here, {WRITER!r}))
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    writer.keep_returned(value, {name!r})
"""


def _values() -> str:
    marker = defined_in_script
    return f"""\
def _echelon_values():
    import os
    import pickle

    names = globals()

    def defined_here(path):
        first, *rest = path.split(".")
        found = names[first]
        for name in rest:
            found = getattr(found, name)
        return found

    class Values(pickle.Unpickler):
        def find_class(self, module, name):  # what this script defines itself stands in the file by name
            if (module, name) == ({marker.__module__!r}, {marker.__name__!r}):
                return defined_here
            return super().find_class(module, name)

    here = os.path.dirname(os.path.realpath(__file__))
    return Values(open(os.path.join(here, {VALUES!r}), "rb"))


_echelon_values = _echelon_values()


def {STORED}(name):  # values are read in the order in which they were written; the name is for the reader
    return _echelon_values.load()
"""
