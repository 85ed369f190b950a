"""A value in a Kubernetes document with its place, and the checks of what may stand there.

Every mistake is an InvalidJob of one line: file, line, path in the document, value, fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any

from echelon.errors import InvalidJob
from echelon.jobfile.conversion import At, Written, dotted, inside, wrong
from echelon.values import frozen

_OCTAL = re.compile(r"0[0-7]+")
_MERGE = "<<"
_NAMED = 12  # fields that an error names


@frozen
class Node:
    """A value, as it was written, and where it stands."""

    value: Any
    at: At


def refuse(node: Node, problem: str, hint: str) -> InvalidJob:
    """The error about a value."""
    return wrong(node.at, node.value, problem, hint)


def note(node: Node, text: str) -> str:
    """What the user is told about a field."""
    return f"{dotted(node.at.place)}: {text}"


def fields(node: Node, known: Collection[str] | None = None) -> dict[str, Node]:
    """The fields of a mapping by name; those that are null count as absent. With `known`, no others."""
    if not isinstance(node.value, Mapping):
        raise refuse(node, "is not a mapping", "write names and values, indented below it")
    found = {}
    for key, value in node.value.items():
        one = Node(value=value, at=inside(node.at, key))
        if known is not None and key not in known:
            raise refuse_name(one, key, known)
        if not (isinstance(value, Written) and value.value is None):
            found[key] = one
    return found


def refuse_name(node: Node, name: str, known: Collection[str]) -> InvalidJob:
    """The error about a field that Kubernetes or Kubeflow do not know."""
    by_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_case, n=1)
    if close:
        hint = f"did you mean {by_case[close[0]]!r}?"
    else:
        more = "" if len(known) <= _NAMED else ", ..."
        hint = f"there are {', '.join(sorted(known)[:_NAMED])}{more}"
    return wrong(node.at, name, "is not a known field", hint)


def child(node: Node, name: str) -> Node:
    """A field that must be there."""
    found = fields(node).get(name)
    if found is None:
        raise wrong(inside(node.at, name), None, "is missing", f"add {name}:")
    return found


def items(node: Node | None) -> list[Node]:
    """The items of a list; none where it is absent."""
    if node is None:
        return []
    if not isinstance(node.value, list):
        raise refuse(node, "is not a list", "write each item on a line of its own, after a -")
    return [Node(value=value, at=inside(node.at, number)) for number, value in enumerate(node.value)]


def text(node: Node) -> str:
    """Text; a number or a boolean as it was written."""
    if isinstance(node.value, Written):
        return node.value.text
    if not isinstance(node.value, str):
        raise refuse(node, "is not text", "write one value, in quotes if it holds a colon or braces")
    return node.value


def optional_text(node: Node | None) -> str | None:
    """The same, or None where it is absent."""
    return None if node is None else text(node)


def number(node: Node | None, *, least: int = 0) -> int | None:
    """A whole number, or None where it is absent."""
    if node is None:
        return None
    value = node.value.value if isinstance(node.value, Written) else node.value
    if isinstance(value, bool) or not isinstance(value, int):
        quoted = isinstance(value, str) and value.isdecimal()
        raise refuse(node, "is not a whole number", "leave the quotes out" if quoted else "write one, as 2")
    if value < least:
        raise refuse(node, f"is less than {least}", f"at least {least}")
    return value


def one_of(node: Node, choices: Collection[str]) -> str:
    """One of some words."""
    word = text(node)
    if word not in choices:
        raise refuse(node, f"is not one of {', '.join(choices)}", "give one of them")
    return word


def texts(node: Node | None) -> tuple[str, ...]:
    """A list of words."""
    return tuple(text(each) for each in items(node))


def is_true(node: Node | None) -> bool:
    """Whether a boolean is there and true."""
    return node is not None and isinstance(node.value, Written) and node.value.value is True


def plain(value: Any) -> Any:
    """The value as Kubernetes reads it: a whole number that begins with 0 is octal, as the mode of a file."""
    if isinstance(value, Written):
        octal = isinstance(value.value, int) and _OCTAL.fullmatch(value.text)
        return int(value.text, 8) if octal else value.value
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def merged(value: Any) -> Any:
    """The value with merge keys (`<<: *base`) in effect: YAML 1.2 has none, but Kubernetes reads them."""
    if isinstance(value, Mapping):
        own = {key: merged(each) for key, each in value.items() if key != _MERGE}
        if _MERGE not in value:
            return own
        bases = value[_MERGE] if isinstance(value[_MERGE], list) else [value[_MERGE]]
        made: dict[str, Any] = {}
        for base in reversed(bases):
            made |= merged(base) if isinstance(base, Mapping) else {_MERGE: base}
        return made | own
    return [merged(each) for each in value] if isinstance(value, list) else value
