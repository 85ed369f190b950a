"""YAML 1.2 text as plain values with their lines, and the one place that uses PyYAML.

PyYAML reads YAML 1.1, in which `on`, `yes` and `n` are booleans, `010` is eight and `1:30` is ninety. Its
scanner and parser serve here, with the rules of 1.2's core schema for plain scalars. It is imported only when
there is YAML to read: PyYAML is slow to import.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from echelon.errors import InvalidJob
from echelon.jobfile.conversion import Place, Written

MOST_VALUES = 20_000
"""A file of a few lines can stand for billions of values, each alias doubling the one before."""

_TAG = "tag:yaml.org,2002:"
_CORE = {
    "null": re.compile(r"(?:null|Null|NULL|~|)\Z"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    "int": re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    "float": re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}


class _CoreLoader(yaml.SafeLoader):
    """PyYAML with the core schema's rules in the place of its own."""

    yaml_implicit_resolvers = {None: [(f"{_TAG}{kind}", rule) for kind, rule in _CORE.items()]}  # noqa: RUF012 - its own


def parse(text: str, source: str) -> tuple[Any, dict[Place, int]]:
    """Return the text's one value, None where it is empty, and the line of every value in it by its place.

    Mappings are dicts with text as keys; what is not text, a list or a mapping is Written.
    """
    with _reported(text, source):
        node = _CoreLoader(text).get_single_node()
        return _value_of(node, source)


def parse_all(text: str, source: str) -> list[tuple[Any, dict[Place, int]]]:
    """Return the same for every document of a file that may hold several; empty ones are left out."""
    with _reported(text, source):
        loader = _CoreLoader(text)
        found = []
        while loader.check_node():
            found.append(_value_of(loader.get_node(), source))
        return [each for each in found if each[0] is not None]


def _value_of(node: yaml.Node | None, source: str) -> tuple[Any, dict[Place, int]]:
    if node is None or (node.tag == f"{_TAG}null" and not node.value):
        return None, {}
    reading = _Reading(source)
    return reading.value(node, ()), reading.lines


@contextlib.contextmanager
def _reported(text: str, source: str) -> Iterator[None]:
    """PyYAML's errors as ours."""
    try:
        yield
    except yaml.YAMLError as error:
        raise _not_yaml(error, text, source) from None
    except RecursionError:
        raise InvalidJob(source, "…", "is nested too deeply", hint="a job has three levels at most") from None
    except (ValueError, OverflowError):  # PyYAML lets these through for an escape beyond Unicode
        hint = "no character is above \\U0010FFFF"
        raise InvalidJob(source, "…", "is not YAML: an escape names no character", hint=hint) from None


def plain(text: str) -> str | Written:
    """Read one plain scalar."""
    kind = next((kind for kind, rule in _CORE.items() if rule.match(text)), "str")
    return text if kind == "str" else Written(text=text, value=_constant(kind, text))


class _Reading:
    """Makes values of nodes, counts them and notes their lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[Place, int] = {}
        self.left = MOST_VALUES

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.left -= 1
        if self.left < 0:
            hint = "is an alias (*name) repeated within another?"
            raise self.wrong(node, "…", f"stands for more than {MOST_VALUES} values", hint)
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self.mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(each, (*place, index)) for index, each in enumerate(node.value)]
        return self.scalar(node)

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_TAG}null":
                raise self.wrong(key_node, "…", "is not a key", "a key is a word before a colon")
            key = self.text(key_node)  # always text, whatever it would be as a value
            if key in found:
                hint = f"it stands in line {self.lines[(*place, key)]} already: keep one of them"
                raise self.wrong(key_node, key, "is given twice", hint)
            self.lines[(*place, key)] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, (*place, key))
        return found

    def scalar(self, node: yaml.Node) -> str | Written:
        kind = node.tag.removeprefix(_TAG)
        if kind != "str" and (kind not in _CORE or not _CORE[kind].match(str(node.value))):
            shown = f"!!{kind}" if node.tag.startswith(_TAG) else node.tag
            raise self.wrong(node, shown, "is a tag without meaning here", "leave the tag out")
        text = self.text(node)
        return text if kind == "str" else Written(text=text, value=_constant(kind, text))

    def text(self, node: yaml.Node) -> str:
        """Join the two escapes that JSON writes for one character beyond the first 65,536."""
        try:
            return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            hint = "an escape between \\uD800 and \\uDFFF has meaning in pairs only"
            raise self.wrong(node, node.value, "holds half a character", hint) from None

    def wrong(self, node: yaml.Node, value: str, problem: str, hint: str) -> InvalidJob:
        return InvalidJob(f"{self.source}:{node.start_mark.line + 1}", value[:80], problem, hint=hint)


def _constant(kind: str, text: str) -> bool | int | float | None:
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if len(text) > 300:  # no count of anything, and Python can neither read nor print the longest
        return math.inf
    return int(text, 0 if text.startswith(("0o", "0x")) else 10)


def _not_yaml(error: yaml.YAMLError, text: str, source: str) -> InvalidJob:
    line, column, problem = 1, 1, "it cannot be read"
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed"
    elif isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        problem = error.problem or problem
        if mark is not None:
            line, column = mark.line + 1, mark.column + 1
    rows = [row.strip() for row in text.split("\n")[:line]]
    row = next((row for row in reversed(rows) if row), "")  # an open bracket shows at the file's end only
    hint = _advice(str(error), row, deeper=_is_deeper(text.split("\n")[:line]))
    return InvalidJob(f"{source}:{line}:{column}", row[:80], f"is not YAML: {problem}", hint=hint)


def _is_deeper(rows: Sequence[str]) -> bool:
    """Whether the last row is indented more than the one above it, which has a value already."""
    *above, last = rows
    before = next((row for row in reversed(above) if row.strip() and not row.lstrip().startswith("#")), None)
    if before is None or before.rstrip().endswith((":", "|", ">")):
        return False
    return len(last) - len(last.lstrip()) > len(before) - len(before.lstrip().removeprefix("- "))


def _advice(trouble: str, row: str, *, deeper: bool) -> str:
    if "{output}" in row or "{run}" in row:
        return 'quote a word with braces, as in "{output}/model"'
    if "'\\t'" in trouble:
        return "indent with spaces, not with tabs"
    if deeper and ("mapping values" in trouble or "block mapping start" in trouble):
        return "it is indented more than the line above: begin both in the same column"
    if "mapping values" in trouble or "cannot start any token" in trouble:
        return "quote text that holds a colon or begins with a special character"
    if "another document" in trouble:
        return "a file holds one job: remove the line ---"
    if "alias" in trouble:
        return "quote text that begins with *"
    return "look at this line and the one above it: indentation, quotes, brackets"
