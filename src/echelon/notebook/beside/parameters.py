"""A parameter's value from its text, of the type that the notebook gives it. Pure."""

from __future__ import annotations

import ast
from typing import Any

_CHECKED = ("int", "float", "bool", "list", "tuple", "dict", "set")


def parse_text(kind: str, text: str) -> Any:
    """The value that a text means, of the type called `kind`; raises ValueError if it is none."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = text
    if kind == "str":
        return value if isinstance(value, str) else text
    if kind == "bool" and text.lower() in ("true", "false", "yes", "no", "1", "0"):
        return text.lower() in ("true", "yes", "1")
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in _CHECKED and type(value).__name__ != kind:
        raise ValueError("%r is no %s" % (text, kind))
    return value
