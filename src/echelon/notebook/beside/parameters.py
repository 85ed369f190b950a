"""A parameter's value from its text, of the type that the notebook gives it. Pure."""

from __future__ import annotations

import ast
from typing import Any

# What a text of each type that is checked looks like.
EXAMPLES = {
    "int": "3",
    "float": "0.5 or 1e-3",
    "bool": "true, false, yes, no, 1 or 0",
    "list": "[1, 2]",
    "tuple": "(1, 2)",
    "dict": "{'a': 1}",
    "set": "{1, 2}",
    "bytes": "b'a'",
    "complex": "1+2j",
}
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


def parse_text(kind: str, text: str) -> Any:
    """The value that a text means, of the type called `kind`; raises ValueError if it is none."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = text
    if kind == "str":
        return value if isinstance(value, str) else text
    if kind == "bool" and text.strip().lower() in _YES + _NO:
        return text.strip().lower() in _YES
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in EXAMPLES and type(value).__name__ != kind:
        raise ValueError("%r is not %s %s" % (text, "an" if kind == "int" else "a", kind))
    return value
