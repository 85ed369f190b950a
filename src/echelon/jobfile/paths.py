"""Paths in a file are relative to that file's folder; here they are made right from the working directory.

Which settings are paths is declared with them (`model/settings.py`). `script` and the program of a `command`,
the run's or a role's, become what the user would have typed here: relative where they are below the working
directory, absolute elsewhere. All others, and the file of a secret, become absolute. A program without a
slash is looked up on the PATH, as everywhere; all other arguments of a command, and `args`, are passed on
untouched, for only the program they are given to knows which of them are paths. Paths in a pod (`mount`,
`code`, `output`, `collect`, `checkpoints`, and programs where the code lies in the image) are not of this
machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from echelon.jobfile.conversion import At, inside, wrong
from echelon.model.pods.pod import IMAGE
from echelon.model.settings import RoleSettings, Settings, Text


def settings_seen_from(settings: Settings, folder: Path, at: At) -> Settings:
    """Return the settings with the paths in them, written relative to `folder`, made right from here."""

    def full(key: str, text: str) -> str:
        try:
            return _full(folder, text)
        except (OSError, RuntimeError, ValueError) as error:
            raise wrong(inside(at, key), text, f"cannot be a path: {error}", "check its spelling") from None

    def short(key: str, text: str) -> str:
        return text if text.startswith("/") else seen_from_here(full(key, text))

    def command(key: str, line: Sequence[Text] | str) -> Sequence[Text] | str:
        parts = _split(line)
        if not parts or "/" not in parts[0] or settings.code == IMAGE:
            return line
        program = short(key, parts[0])
        # Without a slash it would be looked up on the PATH.
        return (program if "/" in program else f"./{program}", *parts[1:])

    def secret(text: str) -> str:
        name, separator, file = text.partition("=@")
        return f"{name}=@{full('secret', file)}" if separator and file else text

    changes: dict[str, Any] = {}
    for each in fields(Settings):
        value, kind = getattr(settings, each.name), each.metadata["path"]
        if not value or kind in (None, "pattern"):
            continue
        if kind == "script":
            changes[each.name] = short(each.name, value)
        elif kind == "command":
            changes[each.name] = command(each.name, value)
        elif kind != "program" or "/" in value:
            changes[each.name] = full(each.name, value)
    if settings.secret:
        changes["secret"] = tuple(secret(text) for text in settings.secret)
    roles = settings.roles or {}
    moved = {
        name: replace(each, command=command("command", each.command))
        for name, each in roles.items()
        if isinstance(each, RoleSettings) and each.command
    }
    if moved:
        changes["roles"] = {**roles, **moved}
    return replace(settings, **changes)


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


def _split(command: Sequence[Text] | str) -> list[str]:
    """The arguments of a command; none where its quotes are not closed, which `to_job` reports."""
    if not isinstance(command, str):
        return [str(word) for word in command]
    import shlex

    try:
        return shlex.split(command)
    except ValueError:
        return []
