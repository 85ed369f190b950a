"""Captured variables that several functions hold: a counter that one closure increments and another reads.

Functions that are shipped separately each get a copy of such a variable, which is wrong as soon as one of
them assigns it.
"""

from __future__ import annotations

import dis
from types import CodeType, FunctionType


class CapturedVariables:
    """The holders of each variable. A unit is a function, or several that share their variables."""

    def __init__(self) -> None:
        self._holders: dict[int, dict[object, str]] = {}  # by the identity of the variable's cell
        self._assigned: dict[int, str] = {}

    def note(self, function: FunctionType, unit: object) -> None:
        """Record that the function is shipped as this unit, or as part of it."""
        assigned = _assigned_in(function.__code__)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._holders.setdefault(id(cell), {})[unit] = function.__name__
            if variable in assigned:
                self._assigned[id(cell)] = variable

    def torn_apart(self) -> str:
        """The functions that would lose a shared variable, for a message; empty if there are none."""
        for cell, variable in self._assigned.items():
            if len(holders := self._holders[cell]) > 1:
                return f"{' and '.join(map(repr, holders.values()))} share the variable {variable!r}"
        return ""


def _assigned_in(code: CodeType) -> set[str]:
    steps = (step for step in dis.get_instructions(code) if step.opname in ("STORE_DEREF", "DELETE_DEREF"))
    inner = (_assigned_in(part) for part in code.co_consts if isinstance(part, CodeType))
    return {step.argval for step in steps}.union(*inner) & set(code.co_freevars)
