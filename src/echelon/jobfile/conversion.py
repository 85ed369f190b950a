"""From keys and values to Settings, strictly: one check for job files, `[tool.echelon]`, `--set`, keywords.

What fits is decided by the types of Settings alone, so a new field there needs nothing here.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, SupportsIndex, Union, get_args, get_origin

from echelon.errors import InvalidJob
from echelon.model.former import FORMER, HIDDEN, name_of_now
from echelon.model.settings import Settings
from echelon.values import frozen, types_of

Place = tuple[str | int, ...]
TEXT = {str, int, float}
"""The members of a type whose values are text in the end: a number there is kept as it was written."""

_MISFIT = object()


@frozen
class Written:
    """A number, a boolean or nothing (None) in a file, with its text: an argument `1e-3` must stay `1e-3`."""

    text: str
    value: bool | int | float | None


@frozen
class At:
    """Where a value stands: what an error about it has to name."""

    source: str
    lines: Mapping[Place, int] = field(default_factory=dict)
    place: Place = ()


def settings_from(mapping: Mapping[str, object], *, source: str) -> Settings:
    """Check keywords or any other mapping, and make Settings of them. None means: not given."""
    return build_settings(mapping, At(source=source))


def build_settings(mapping: Mapping[str, object], at: At) -> Settings:
    """Make Settings, or raise the InvalidJob that names the first key or value that is wrong."""
    made = _build(Settings, mapping, at)
    assert isinstance(made, Settings)
    return made


def setting_name(key: str) -> str | None:
    """The setting that a key means, whichever of its spellings it is."""
    return spellings(Settings).get(key)


def spellings(kind: type[Any]) -> dict[str, str]:
    """Every way to write a field's name, in order: with underscores, with dashes, and as its flag."""
    found: dict[str, str] = {}
    for each in fields(kind):
        flag = each.metadata.get("flag")
        for key in (each.name, each.name.replace("_", "-"), flag if isinstance(flag, str) else each.name):
            found[key] = each.name
    return found


def options_of(kind: Any) -> tuple[Any, ...]:
    """The members of a union, None left out; of any other type, itself."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(member for member in members if member is not NoneType)


def inside(at: At, step: str | int) -> At:
    """One step further in."""
    return replace(at, place=(*at.place, step))


def wrong(at: At, value: object, problem: str, hint: str) -> InvalidJob:
    """Make the error about the value that stands there."""
    name, shown = dotted(at.place), _shown(value)
    if at.place[:1] == ("secret",):  # what stands there may be a password, by mistake
        shown, hint = "…", "write a list of NAME or NAME=@FILE"
    error = InvalidJob(f"{_line(at)}: {name}", shown, problem, hint=hint)
    error.field = name
    return error


def _build(kind: type[Any], mapping: Mapping[str, object], at: At) -> Any:
    names, kinds = spellings(kind), types_of(kind)
    given: dict[str, Any] = {}
    seen: dict[str, str] = {}
    items = mapping.items()
    for key, value in items if kind is not Settings else (_by_name_of_now(*item) for item in items):
        name = names.get(key)
        if name is None:
            raise _unknown(key, list(kinds), at)
        if value is None:
            continue
        if name in seen:
            hint = f"it is the same as {seen[name]!r}: keep one of them"
            raise wrong(inside(at, key), value, "is given twice", hint)
        seen[name] = key
        given[name] = _fit(value, kinds[name], inside(at, key), nested=False)
    return kind(**given)


def _by_name_of_now(key: str, value: object) -> tuple[str, object]:
    former = str(key).replace("-", "_")
    if former not in FORMER and former not in HIDDEN:
        return key, value
    if value is None:
        return "name", None  # as good as not there
    return name_of_now(former, value.text if isinstance(value, Written) else value)


def _fit(value: object, kind: Any, at: At, *, nested: bool) -> Any:
    """The value in the form of its type. `nested`: in a list or mapping, where a boolean can be text."""
    if kind is Any:
        return _plain(value)  # Kubernetes checks it, not echelon
    data = value.value if isinstance(value, Written) else value
    options = options_of(kind)
    if data is None:
        raise wrong(at, None, "is not a value", 'leave it out, or quote it to mean text, as in ""')
    if set(options) >= TEXT:
        if isinstance(value, Written) and (nested or not isinstance(data, bool)):
            return value.text
        if isinstance(data, str | int | float) and not isinstance(data, bool):
            return data
    for option in options:
        fitted = _fit_one(data, option, at)
        if fitted is not _MISFIT:
            return fitted
    raise wrong(at, value, *_problem_and_fix(value, options))


def _fit_one(data: object, option: Any, at: At) -> Any:
    """Make the value fit one member of a union, or return _MISFIT where it is of another kind altogether."""
    origin = get_origin(option) or option
    if isinstance(origin, type) and is_dataclass(origin):
        if isinstance(data, Mapping):
            return _build(origin, data, at)
        fits = isinstance(data, origin)
    elif origin is Mapping and isinstance(data, Mapping):
        inner = get_args(option)[1]
        return {_key(key, at): _fit(each, inner, inside(at, key), nested=True) for key, each in data.items()}
    elif origin is Sequence and isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray):
        inner = get_args(option)[0]
        return tuple(_fit(each, inner, inside(at, index), nested=True) for index, each in enumerate(data))
    elif origin is str:
        return _text(data, at)
    elif origin is int:
        return _whole_number(data)
    else:
        fits = isinstance(data, bool) if origin is bool else origin is Literal and data in get_args(option)
    return data if fits else _MISFIT


def _text(data: object, at: At) -> Any:
    text = os.fspath(data) if isinstance(data, str | os.PathLike) else None
    if not isinstance(text, str):
        return _MISFIT
    if not text:
        raise wrong(at, text, "is empty", "leave it out or give a value")
    return text


def _whole_number(data: object) -> Any:
    if isinstance(data, bool):
        return _MISFIT
    if isinstance(data, float) and data.is_integer():
        return int(data)  # to JSON, and so to the schema, 2.0 and 2 are the same number
    try:
        return (
            operator.index(data) if isinstance(data, SupportsIndex) else _MISFIT
        )  # an int, or one of NumPy's
    except TypeError:
        return _MISFIT


def _key(key: object, at: At) -> str:
    if not isinstance(key, str):
        raise wrong(at, key, "is not a name", f"write {str(key)!r}")
    return key


_NAMED = 12  # settings that an error names; more are in the help


def _unknown(key: object, known: Sequence[str], at: At) -> InvalidJob:
    import difflib

    close = difflib.get_close_matches(str(key).lower().replace("-", "_"), known, n=1)
    if close:
        hint = f"did you mean {close[0]!r}?"
    elif len(known) <= _NAMED:
        hint = f"the settings are {', '.join(known)}"
    else:
        hint = "`echelon run --help` has them all, with _ in place of -"
    where = _line(inside(at, str(key)))
    error = InvalidJob(
        f"{where}: {dotted(at.place)}" if at.place else where, key, "is not a setting", hint=hint
    )
    error.field = str(key)
    return error


def _problem_and_fix(value: object, options: Sequence[Any]) -> tuple[str, str]:
    data = value.value if isinstance(value, Written) else value
    first = get_origin(options[0]) or options[0]
    if first is Literal:
        import difflib

        known = [str(each) for each in get_args(options[0])]
        close = difflib.get_close_matches(str(data).lower(), known, n=1)
        return (
            f"is not one of {', '.join(known)}",
            f"did you mean {close[0]!r}?" if close else "give one of them",
        )
    wanted = ["text or a number"] if set(options) >= TEXT else [_kind_named(each) for each in options]
    problem = f"is {_kind_of(data)}, not {' or '.join(wanted)}"
    if str in options:
        if isinstance(data, Mapping):
            return problem, 'quote it if it is text, as in "{output}"'
        return problem, f'quote it: "{value.text[:40]}"' if isinstance(value, Written) else "give text"
    if first is Sequence:
        words = data.split() if isinstance(data, str) and len(data) < 60 else ["first", "second"]
        return problem, f"write a list: [{', '.join(words)}]"
    if first is Mapping:
        return problem, "write names and values: {NAME: VALUE}"
    if first is bool:
        return problem, "give true or false"
    if isinstance(data, str) and data.isdecimal():
        return problem, f"leave the quotes out: {data}"
    return problem, "give a number such as 2"


def _kind_named(kind: Any) -> str:
    names = {str: "text", int: "a whole number", bool: "a boolean", Sequence: "a list"}
    return names.get(get_origin(kind) or kind, "a mapping")


def _kind_of(data: object) -> str:
    kinds: list[tuple[type[Any], str]] = [
        (bool, "a boolean"),
        (str, "text"),
        (bytes, "bytes"),
        (int, "a whole number"),
        (float, "a decimal number"),
        (Mapping, "a mapping"),
        (Sequence, "a list"),
    ]
    return next((name for kind, name in kinds if isinstance(data, kind)), f"of type {type(data).__name__}")


def _line(at: At) -> str:
    """The file and the line; of a key that is missing, the line of the mapping that lacks it."""
    known = (at.place[:end] for end in range(len(at.place), -1, -1) if at.place[:end] in at.lines)
    place = next(known, None)
    return at.source if place is None else f"{at.source}:{at.lines[place]}"


def dotted(place: Place) -> str:
    """The place of a value in words: roles.ps.args[0]."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")


def _shown(value: object) -> object:
    """What an error shows of a value: as it was written, and not at length."""
    plain = _plain(value)
    try:
        text = repr(plain)
    except ValueError:  # a whole number of thousands of digits, which Python does not print
        return "…"
    return plain if len(text) <= 80 else text[:80] + "…"


def _plain(value: object) -> object:
    if isinstance(value, Written):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
