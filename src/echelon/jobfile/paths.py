"""Paths in a file are relative to that file's folder; here they are made right from the working directory.

`script` and the program of a `command`, the run's or a role's, become what the user would have typed here:
relative where they are below the working directory, absolute elsewhere. `results`, `python`, `requirements`
and the file of a secret become absolute. A program without a slash is looked up on the PATH, as everywhere;
all other words of a command, and `args`, are passed on untouched, for only the program they are given to
knows which of them are paths. Paths in a pod (`mount`, `code`, `output`, `collect`) are none of this
machine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.jobfile.conversion import At, inside, wrong
from echelon.model.settings import RoleSettings, Settings, Text


def settings_seen_from(said: Settings, folder: Path, at: At) -> Settings:
    """Return the settings with the paths in them, written relative to `folder`, made right from here."""

    def path(key: str, text: str) -> str:
        try:
            return _full(folder, text)
        except (OSError, RuntimeError, ValueError) as error:
            raise wrong(inside(at, key), text, f"cannot be a path: {error}", "check its spelling") from None

    def short_path(key: str, text: str) -> str:
        return text if text.startswith("/") else seen_from_here(path(key, text))

    def secret(text: str) -> str:
        name, separator, file = text.partition("=@")
        return f"{name}=@{path('secret', file)}" if separator and file else text

    def program(command: Sequence[Text] | str | None) -> tuple[str, ...] | None:
        words = _words(command or ())
        if not words or "/" not in words[0]:
            return None
        first = short_path("command", words[0])
        # Without a slash it would be looked up on the PATH.
        return (first if "/" in first else f"./{first}", *words[1:])

    changes: dict[str, Any] = {}
    if said.script:
        changes["script"] = short_path("script", said.script)
    if said.results:
        changes["results"] = path("results", said.results)
    if said.requirements:
        changes["requirements"] = path("requirements", said.requirements)
    if said.python and "/" in said.python:
        changes["python"] = path("python", said.python)
    if said.secret:
        changes["secret"] = tuple(secret(text) for text in said.secret)
    if (command := program(said.command)) is not None:
        changes["command"] = command
    roles = said.roles or {}
    own = {name: each for name, each in roles.items() if isinstance(each, RoleSettings)}
    moved = {
        name: replace(each, command=found) for name, each in own.items() if (found := program(each.command))
    }
    if moved:
        changes["roles"] = {**roles, **moved}
    return replace(said, **changes)


def seen_from_here(full: str) -> str:
    """Write an absolute path as a person would who stands in the working directory."""
    try:
        return str(Path(full).relative_to(Path.cwd()))
    except (OSError, ValueError):
        return full


def _full(folder: Path, text: str) -> str:
    path = Path(text).expanduser()
    if path.is_absolute():
        return str(path)
    path = folder / path
    # The last part stays as it is: the python of a virtual environment is a link that works by its own name.
    return str(path.parent.resolve() / path.name)


def _words(command: Sequence[Text] | str) -> list[str]:
    """The words of a command; none where its quotes are not closed, which the making of the Job reports."""
    if not isinstance(command, str):
        return [str(word) for word in command]
    import shlex

    try:
        return shlex.split(command)
    except ValueError:
        return []
