"""Which names of a notebook one of its cells needs, when that cell alone runs elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Container

from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.analysis.flow import flow_of
from echelon.notebook.analysis.parameters import Code


def names_needed(text: str, there: Container[str]) -> frozenset[str]:
    """The names that a cell reads before it binds them, or may; `there` are those that the notebook has.

    Raises InvalidNotebook for one that nothing defines: each worker would fail with a NameError. Text that is
    no Python has none.
    """
    try:
        flow = flow_of([Code(cell=1, text=text)])
    except SyntaxError:
        return frozenset()
    missing = {} if flow.stars else {name: at for name, at in flow.needs.items() if name not in there}
    for name, place in missing.items():
        hint = "run the cell that defines it first"
        raise InvalidNotebook(f"the cell, line {place.line}", f"{name!r} is not defined", hint=hint)
    return frozenset(name for name in (*flow.needs, *flow.wants) if name in there)
