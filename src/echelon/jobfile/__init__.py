"""What a user wrote down, as Settings: job files, `[tool.echelon]`, `--set` and the Python call's keywords.

No other module knows how a job is written down. Every mistake is an InvalidJob that names the source (file
and line where there is one), the key, the value and the fix. Paths in a file are relative to that file's
folder.

Which settings are paths is declared with them (`model/settings.py`). `script` and the program of a `command`,
the run's or a role's, become what the user would have typed here: relative where they are below the working
directory, absolute elsewhere. All others, and the file of a secret, become absolute. A program without a
slash is looked up on the PATH, as everywhere; all other arguments of a command, and `args`, are passed on
untouched, for only the program they are given to knows which of them are paths. Paths in a pod (`mount`,
`code`, `output`, `collect`, `checkpoints`, and programs where the code lies in the image) are not of this
machine.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from echelon.errors import InvalidJob
from echelon.jobfile.conversion import At, Written, build_settings, inside, setting_name, settings_from, wrong
from echelon.model.pods.pod import IMAGE
from echelon.model.settings import OF_ONE_RUN, WHAT_TO_RUN, RoleSettings, Settings, Text, add_up

__all__ = ["read_job_file", "read_overrides", "read_text", "read_tool_table", "settings_from"]

LARGEST = 256 * 1024
"""No job is this long; what is larger is the wrong file, and would take seconds to parse."""


def read_job_file(path: Path) -> Settings:
    """Read a job kept in a YAML 1.2 or JSON file; it has exactly one of script, module, command."""
    from echelon.jobfile.document import parse

    source = str(path)
    text = read_text(path)
    if path.suffix == ".json":
        text = text.replace("\t", " ")  # JSON may be indented with tabs, YAML may not; no JSON text holds one
    data, lines = parse(text, source)
    if data is None:
        raise InvalidJob("job file", source, "is empty", hint="it needs a line such as script: train.py")
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        raise InvalidJob(
            "job file",
            source,
            f"holds {kind}, not keys and values",
            hint="write lines such as script: train.py",
        )
    at = At(source=source, lines=lines)
    settings = settings_seen_from(build_settings(data, at), path.parent, at)
    given = [name for name in WHAT_TO_RUN if getattr(settings, name) is not None]
    if not given:
        hint = "add one of script, module, command; for example script: train.py"
        raise InvalidJob("job file", source, "does not say what to run", hint=hint)
    if len(given) > 1:
        both = " and ".join(given)
        raise InvalidJob("job file", source, f"says {both}", hint="keep one of them: a job runs one thing")
    return settings


def read_tool_table(start: Path) -> Settings:
    """Read the defaults in `[tool.echelon]` of the nearest pyproject.toml above `start`, a script or folder.

    One that never mentions echelon is not parsed, so that a mistake in it is not echelon's business.
    """
    found = _nearest_pyproject(start)
    if found is None or b"echelon" not in found[1]:
        return Settings()
    import tomllib

    path, raw = found
    source = seen_from_here(str(path))
    try:
        # A number is kept as it was written, see Written.
        tables = tomllib.loads(raw.decode(), parse_float=lambda text: Written(text=text, value=float(text)))
    except UnicodeDecodeError:
        raise InvalidJob("[tool.echelon]", source, "is not UTF-8 text", hint="save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise InvalidJob(
            "[tool.echelon]", source, f"is not TOML: {error}", hint="correct that file"
        ) from None
    tool = tables.get("tool", {})
    table = tool.get("echelon", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise InvalidJob(
            "[tool.echelon]", source, "has a value where a table belongs", hint="write [tool.echelon]"
        )
    at = At(source=f"{source} [tool.echelon]")
    settings = build_settings(_as_written(table), at)
    for name in OF_ONE_RUN:
        if (value := getattr(settings, name)) is not None:
            hint = "it belongs to one run: move it to a job file or the command line"
            raise InvalidJob(f"{at.source}: {name}", value, "cannot be a default of all runs", hint=hint)
    return settings_seen_from(settings, path.parent, at)


def read_overrides(pairs: Sequence[str]) -> Settings:
    """Read `--set KEY=VALUE`: dots go deeper (env.LR, roles.ps.gpus), the later of two wins.

    A value in brackets, braces or quotes is YAML; any other is taken as it stands, so that no character in it
    needs care. Paths are relative to the working directory, as those of flags are.
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key.strip(".- "):
            raise InvalidJob("--set", pair, "is not KEY=VALUE", hint="for example --set workers=8")
        steps = key.strip().split(".", 1)
        if len(steps) == 2 and setting_name(steps[0]) == "roles":
            steps[1:] = steps[1].split(
                ".", 1
            )  # elsewhere a dot belongs to the name: resource.nvidia.com/gpu=1
        value = _override(text.strip())
        for step in reversed(steps[1:]):
            value = {step: value}
        one = build_settings({steps[0]: value}, At(source="--set"))
        for each in fields(one):
            settings[each.name] = add_up(getattr(one, each.name), settings.get(each.name))
    return settings_seen_from(Settings(**settings), Path(), At(source="--set"))


def _override(text: str) -> object:
    from echelon.jobfile.document import parse, plain

    return parse(text, "--set")[0] if text.startswith(("[", "{", '"', "'")) else plain(text)


def read_text(path: Path) -> str:
    """The text of a job file, or the InvalidJob that tells why there is none."""
    source = str(path)
    try:
        if source == "-":
            raw = _standard_input()
        else:
            with path.open("rb") as file:
                raw = file.read(LARGEST + 1)
    except FileNotFoundError:
        hint = _file_like(path) or "check the path; it is relative to the working directory"
        if source.startswith(("https:/", "http:/")):
            hint = "download it first: files are read from this machine; -f - reads standard input"
        raise InvalidJob("job file", source, "does not exist", hint=hint) from None
    except IsADirectoryError:
        raise InvalidJob("job file", source, "is a folder", hint="name the file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidJob(
            "job file", source, f"cannot be read: {reason}", hint="check its permissions"
        ) from None
    if len(raw) > LARGEST:
        raise InvalidJob(
            "job file", source, f"is larger than {LARGEST // 1024} KiB", hint="is it the right file?"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        hint = "a job file is YAML or JSON: is it the right file? If so, save it as UTF-8"
        raise InvalidJob("job file", f"{source}:{line}", "is not UTF-8 text", hint=hint) from None


@cache
def _standard_input() -> bytes:
    """It can be read once, and is asked for as a job file and as a Kubeflow job."""
    return sys.stdin.buffer.read(LARGEST + 1)


def _file_like(path: Path) -> str:
    import difflib

    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [each.name for each in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {str(path.parent / close[0])!r}?" if close else ""


def _nearest_pyproject(start: Path) -> tuple[Path, bytes] | None:
    try:
        here = start if start.is_dir() else start.parent
        here = here.resolve()
        for folder in (here, *here.parents):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return folder / "pyproject.toml", (folder / "pyproject.toml").read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        name = getattr(error, "filename", None) or str(start)
        hint = "check its permissions, or move it away"
        raise InvalidJob("[tool.echelon]", name, f"cannot be read: {reason}", hint=hint) from None
    return None


def _as_written(value: Any) -> Any:
    """Give a boolean of TOML the text it had, as an argument in `args` or a value of `env` needs it."""
    if isinstance(value, bool):
        return Written(text=str(value).lower(), value=value)
    if isinstance(value, dict):
        return {key: _as_written(each) for key, each in value.items()}
    return [_as_written(each) for each in value] if isinstance(value, list) else value


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
