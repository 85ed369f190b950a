"""A function or a class of a notebook, written so that a script can define it again.

The text is as typed; a closure is wrapped in a function that receives the captured variables; a few
statements follow that repeat later changes.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from types import CellType, FunctionType
from typing import Any, TypeGuard

from echelon.function.literals import literal, literal_of
from echelon.function.modules import look_up
from echelon.function.names import Names, names_in
from echelon.function.source import Source, changed_attributes, class_source, function_source, replaced
from echelon.values import frozen

STORED = "_echelon_stored"  # the script's function that reads the next value of the stream
Stored = list[tuple[str, object]]
WriteLiteral = Callable[[object], str | None]
_MOST_LAYERS = 100  # objects searched for the function that decorators have wrapped
_BLOCK = "if True:  # it was typed inside a block\n"
_UNSET = object()


@frozen
class Definition:
    """Python text, what it needs, and the values that its calls of STORED read, in their order."""

    text: str
    names: Names
    stored: tuple[tuple[str, object], ...]
    family: tuple[FunctionType, ...] = ()  # of a closure: it, and the functions that are shipped inside it
    captured: Mapping[str, object] = field(default_factory=dict)  # of a closure: its variables


def definition(name: str, value: object, namespace: dict[str, Any], write: WriteLiteral) -> Definition | None:
    """The text that defines a function or class under this name; None when no text can."""
    typed = _typed_as(name, value, namespace)
    if typed is None:
        return closure(name, value, namespace, write) if isinstance(value, FunctionType) else None
    live, source = typed
    stored: Stored = []
    changed: Mapping[str, object] = {}
    text: str | None = source.text
    if isinstance(live, FunctionType):
        text = _with_defaults(source, live, namespace, write, stored)
        changed = vars(live) if value is live else {}
    elif isinstance(source.node, ast.ClassDef):
        changed = changed_attributes(live, source.node)
    if text is None:
        return None
    text = _BLOCK + text if source.indent else text
    for attribute, new in changed.items():
        text += f"{name}.{attribute} = {expression(attribute, new, write, stored)}\n"
    return _checked(text, stored)


def _typed_as(name: str, value: Any, namespace: dict[str, Any]) -> tuple[FunctionType | type, Source] | None:
    """What was typed at the top level under this name, also when decorators have replaced it."""
    if isinstance(value, type):
        is_typed_here = value.__module__ == namespace.get("__name__") and value.__qualname__ == name
        source = class_source(value, namespace) if is_typed_here else None
        return (value, source) if source else None
    registry = getattr(value, "registry", None)
    if not callable(value) or (isinstance(registry, Mapping) and len(registry) > 1):
        return None  # functools.singledispatch: the text lacks what was registered later
    for inner in _layers(value):
        if not isinstance(inner, FunctionType) or inner.__globals__ is not namespace:
            continue
        if inner.__code__.co_qualname == name:  # not __qualname__: functools.wraps gives it to wrappers, too
            source = function_source(inner)
            if source is not None and (inner is value or source.node.decorator_list):
                return inner, source
    return None


def _checked(text: str, stored: Stored) -> Definition | None:
    try:
        names = names_in(text)
    except SyntaxError:  # cut out of its block it is not valid Python, e.g. with mixed tabs and spaces
        return None
    return Definition(text=text, names=names, stored=tuple(stored))


def closure(
    name: str, function: FunctionType, namespace: dict[str, Any], write: WriteLiteral
) -> Definition | None:
    """A function that was defined inside another, together with the functions beside it that it uses.

    None when text cannot define it: a captured variable is unset, or is the class that super() needs.
    """
    family: dict[str, tuple[FunctionType, Source]] = {}
    captured: dict[str, object] = {}
    waiting = deque([function])
    while waiting:
        member = waiting.popleft()
        source = function_source(member) if member.__globals__ is namespace else None
        if source is None or not source.indent or source.node.decorator_list or vars(member):
            return None
        family[source.node.name] = (member, source)
        for variable, cell in zip(member.__code__.co_freevars, member.__closure__ or (), strict=True):
            content = _content(cell)
            known = family[variable][0] if variable in family else captured.get(variable, content)
            if content is _UNSET or variable == "__class__":
                return None
            if known is not content:  # two variables of one name, from different calls
                return None
            if not _is_beside(content, member, variable):
                captured[variable] = content
            elif variable not in family:
                waiting.append(content)
    return _made_by_a_function(name, function, list(family.values()), captured, namespace, write)


def _made_by_a_function(
    name: str,
    function: FunctionType,
    family: list[tuple[FunctionType, Source]],
    captured: Mapping[str, object],
    namespace: dict[str, Any],
    write: WriteLiteral,
) -> Definition | None:
    inside: Stored = []
    stored: Stored = []
    indent = min((source.indent for _, source in family), key=len)
    body = ""
    for member, source in sorted(family, key=lambda pair: pair[1].first_line):
        text = _with_defaults(source, member, namespace, write, inside)
        # A stored default would be read too late: after the captured variables.
        if text is None or inside:
            return None
        body += text if source.indent == indent else indent + _BLOCK + text
    given = [f"{label}={expression(label, value, write, stored)}" for label, value in captured.items()]
    maker = f"_echelon_make_{name}"
    text = f"def {maker}({', '.join(captured)}):\n{body}{indent}return {function.__code__.co_name}\n\n\n"
    text += f"{name} = {maker}({', '.join(given)})\n"
    if (written := _checked(text, stored)) is None:
        return None
    names = replace(written.names, now=written.names.now | written.names.later)  # its maker is called at once
    return replace(written, names=names, family=tuple(member for member, _ in family), captured=captured)


def _with_defaults(
    source: Source, function: FunctionType, namespace: dict[str, Any], write: WriteLiteral, stored: Stored
) -> str | None:
    """The text with the function's actual defaults; one typed as `lr=LR` may come from an older LR."""
    assert not isinstance(source.node, ast.ClassDef)
    arguments = source.node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    values, by_word = function.__defaults__ or (), function.__kwdefaults__ or {}
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    typed = {keyword.arg: node for keyword, node in keywords if node is not None}
    if len(values) != len(arguments.defaults) or typed.keys() != by_word.keys():
        return None
    typed |= dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
    live = dict(zip(reversed(names), reversed(values), strict=False)) | by_word
    changes = []
    for argument, node in sorted(typed.items(), key=lambda item: (item[1].lineno, item[1].col_offset)):
        value, text = live[argument], literal(live[argument])
        as_typed = text is not None and text == literal_of(node)
        same_object = text is None and look_up(namespace, ast.unparse(node)) is value
        if not (as_typed or same_object or isinstance(node, ast.Lambda)):
            changes.append((node, expression(argument, value, write, stored)))
    return replaced(source, changes)


def expression(label: str, value: object, write: WriteLiteral, stored: Stored) -> str:
    """Text for a value: a literal, or a call that reads it from the stream; then `stored` gets it."""
    if (text := write(value)) is not None:
        return text
    stored.append((label, value))
    return f"{STORED}({label!r})"


def _is_beside(value: object, member: FunctionType, variable: str) -> TypeGuard[FunctionType]:
    beside = member.__qualname__.rpartition(".")[0]
    return isinstance(value, FunctionType) and value.__qualname__ == f"{beside}.{variable}"


def _layers(value: object) -> Iterator[Any]:
    """The value, the object that it wraps, and so on: decorators keep it in a closure or an attribute."""
    waiting, seen = deque([value]), set[int]()
    while waiting and len(seen) < _MOST_LAYERS:
        layer = waiting.popleft()
        if id(layer) in seen or isinstance(layer, type):
            continue
        seen.add(id(layer))
        yield layer
        inner = [getattr(layer, "__wrapped__", None), getattr(layer, "__func__", None)]
        inner += [_content(cell) for cell in getattr(layer, "__closure__", None) or ()]
        inner += list(getattr(layer, "__dict__", {}).values())
        waiting.extend(part for part in inner if callable(part))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _UNSET
