"""Kubernetes' own `$(NAME)` in commands, arguments and variables, which no shell sees. Pure.

A variable that is in the manifest is filled in here. One that gets its value when a worker starts (RANK, or a
key of a Secret) is left to a shell. A name that is not a variable stays as it is, as in Kubernetes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")


def fill(text: str, variables: Mapping[str, str]) -> str:
    """The text with the variables in it; `$$` stands for one dollar sign."""

    def look_up(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(look_up, text)


def fill_command(
    command: Sequence[str],
    args: Sequence[str],
    variables: Mapping[str, str],
    is_later: Callable[[str], bool],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command and its arguments with the variables in them. Where one of them is known only when the
    worker starts (`is_later`), the whole is a command of the shell.
    """
    words = (*command, *args)
    names = {match[1] for word in words for match in _REFERENCE.finditer(word) if match[1] is not None}
    if not any(name not in variables and is_later(name) for name in names):
        return (
            tuple(fill(word, variables) for word in command),
            tuple(fill(word, variables) for word in args),
        )
    line = " ".join(_for_shell(word, variables, is_later) for word in words)
    return ("sh", "-c", f"exec {line}"), ()


def _for_shell(word: str, variables: Mapping[str, str], is_later: Callable[[str], bool]) -> str:
    pieces, end = [], 0
    for match in _REFERENCE.finditer(word):
        name = match[1]
        if name is not None and name not in variables and is_later(name):
            pieces.append(_quoted(fill(word[end : match.start()], variables)) + f'"${{{name}}}"')
            end = match.end()
    rest = _quoted(fill(word[end:], variables))
    return "".join(pieces) + rest or "''"


def _quoted(text: str) -> str:
    return shlex.quote(text) if text else ""
