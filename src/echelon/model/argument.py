"""What callers in Python hand over, checked where it comes in: a wrong type is told as ours, with a hint, and
not by whatever line first stumbles over it."""

from __future__ import annotations

import os
from typing import Any

from echelon.errors import InvalidJob


def check_argument(name: str, value: object, kinds: Any, hint: str) -> None:
    """Raise InvalidJob unless the value has one of the kinds, which are what `isinstance` takes."""
    if not isinstance(value, kinds):
        raise InvalidJob(name, value, f"is of the type {type(value).__name__}", hint=hint)


def checked_path(name: str, value: object) -> str:
    """A path as text."""
    check_argument(name, value, str | os.PathLike, "give a path as text, or a pathlib.Path")
    text = os.fspath(value)  # type: ignore[call-overload]  # checked above
    if not isinstance(text, str) or "\0" in text:
        raise InvalidJob(name, text, "is not a path", hint="give it as text, without NUL characters")
    return text
