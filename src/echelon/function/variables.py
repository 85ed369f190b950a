"""Captured variables that several functions hold: a counter that one closure raises and another reads.

Functions that travel apart each get such a variable for themselves, which is wrong as soon as one of them
assigns it. `gather.py` notes every function here, and asks at the end.
"""

from __future__ import annotations

import dis
from types import CodeType, FunctionType


class CapturedVariables:
    """Who holds which variable. A traveller is a function, or a family of them that shares its variables."""

    def __init__(self) -> None:
        self._holders: dict[int, dict[object, str]] = {}  # by the identity of the variable's cell
        self._assigned: dict[int, str] = {}

    def note(self, function: FunctionType, traveller: object) -> None:
        """The function travels as this, or as part of it."""
        assigned = _assigned_in(function.__code__)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._holders.setdefault(id(cell), {})[traveller] = function.__name__
            if variable in assigned:
                self._assigned[id(cell)] = variable

    def torn_apart(self) -> str:
        """Which functions would lose a variable that they share, in words; empty when none."""
        for cell, variable in self._assigned.items():
            if len(holders := self._holders[cell]) > 1:
                return f"{' and '.join(map(repr, holders.values()))} share the variable {variable!r}"
        return ""


def _assigned_in(code: CodeType) -> set[str]:
    steps = (step for step in dis.get_instructions(code) if step.opname in ("STORE_DEREF", "DELETE_DEREF"))
    inner = (_assigned_in(part) for part in code.co_consts if isinstance(part, CodeType))
    return {step.argval for step in steps}.union(*inner) & set(code.co_freevars)
