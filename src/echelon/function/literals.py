"""Plain data as Python text, as a user would type it."""

from __future__ import annotations

import ast

ATOMS = (type(None), bool, int, float, str, bytes)
_LONGEST = 1000  # characters: longer literals make a script hard to read
_DEEPEST = 20


def literal(value: object) -> str | None:
    """Python text that evaluates to an equal value, or None for what is not short plain data."""
    if not _is_plain(value, _DEEPEST):
        return None
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return None
    return text if len(text) <= _LONGEST else None


def literal_of(expression: ast.expr) -> str | None:
    """The `literal` of an expression that is itself plain data, else None."""
    try:
        return literal(ast.literal_eval(expression))
    except (ValueError, TypeError, SyntaxError):
        return None


def containers(value: object) -> list[int]:
    """The identity of each mutable container in plain data, as often as it occurs."""
    if not isinstance(value, list | tuple | dict | set):
        return []
    own = [] if isinstance(value, tuple) else [id(value)]
    parts = value.values() if isinstance(value, dict) else value
    return own + [found for part in parts for found in containers(part)]


def _is_plain(value: object, depth: int) -> bool:
    if type(value) is float:
        return value - value == 0  # infinity and nan have no literal
    if type(value) in ATOMS:
        return True
    if depth == 0 or not isinstance(value, list | tuple | dict | set) or len(value) > _LONGEST // 3:
        return False
    if type(value) not in (list, tuple, dict, set) or value == set():
        return False
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return all(_is_plain(part, depth - 1) for part in parts)
