"""The text in which a function or a class was typed, verified against the live object.

A file may have been edited since it was imported, a notebook cell typed again, a method replaced by hand. So
the text is compiled again, and counts only when the same code results; otherwise the value itself is shipped.
"""

from __future__ import annotations
import __future__ as future

import ast
import inspect
import linecache
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from echelon.function.literals import literal, literal_of
from echelon.function.modules import look_up
from echelon.values import frozen

Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_FUTURE_FLAGS = [getattr(future, name).compiler_flag for name in future.all_feature_names]


@frozen
class Source:
    """Whole lines as they were typed, indentation and decorators included."""

    text: str
    indent: str
    first_line: int  # where the text begins in the file that `node` was parsed from
    node: Node


def function_source(function: FunctionType) -> Source | None:
    """The text of a `def`; None if there is none (a lambda, an exec), or it is not this function's text."""
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    tree, codes = _parsed(text, _future_flags(code))
    if code not in codes:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):  # noqa: SIM102
            if (node.name, _first_line(node)) == (code.co_name, code.co_firstlineno):
                return _cut(text, node)
    return None


def class_source(cls: type, namespace: dict[str, Any]) -> Source | None:
    """The text of a `class`, found through its methods; without any, in the cells or the file around it."""
    functions = [function for function in _functions_of(cls) if function.__globals__ is namespace]
    wanted = {function.__code__ for function in functions if not _is_generated(function.__code__)}
    files = {code.co_filename for code in wanted}
    if len(files) > 1:  # a method comes from another file: no text has the whole class
        return None
    texts = ["".join(linecache.getlines(file, namespace)) for file in files]
    for text in texts or _texts_of(namespace):
        tree, codes = _parsed(text, max(map(_future_flags, wanted), default=0))
        for node in reversed(list(_classes_named(tree, cls.__qualname__.split(".")))):
            place = (node.name, _first_line(node))
            bodies = [code for code in codes if (code.co_name, code.co_firstlineno) == place]
            inside = {code for body in bodies for code in _nested(body)}
            if wanted <= inside if wanted else _may_be_text_of(node, cls, namespace):
                return _cut(text, node)
    return None


def changed_attributes(cls: type, node: ast.ClassDef) -> dict[str, object]:
    """Attributes of the class that its text does not give: set later, or plain data computed from names."""
    typed, bound = dict(_assigned(node)), _class_level_names(node)
    changed = {}
    for name, value in vars(cls).items():
        if (expression := typed.get(name)) is not None:
            text = literal(value)
            if text is not None and text != literal_of(expression):
                changed[name] = value
        elif not name.startswith("_") and name not in bound:
            changed[name] = value
    return changed


def replaced(source: Source, changes: Sequence[tuple[ast.expr, str]]) -> str:
    """The text with some of its expressions written differently."""
    data = source.text.encode()
    starts = [0]
    for line in data.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    for node, new in sorted(
        changes, key=lambda change: (change[0].lineno, change[0].col_offset), reverse=True
    ):
        begin = starts[node.lineno - source.first_line] + node.col_offset
        end = starts[(node.end_lineno or 0) - source.first_line] + (node.end_col_offset or 0)
        data = data[:begin] + new.encode() + data[end:]
    return data.decode()


@lru_cache(maxsize=64)
def _parsed(text: str, flags: int) -> tuple[ast.Module, frozenset[CodeType]]:
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # notebook cells may await
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warned about a dubious escape when it was typed
            code = compile(text, "source", "exec", flags, dont_inherit=True)
            return ast.parse(text), frozenset(_nested(code))
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[]), frozenset()


def _future_flags(code: CodeType) -> int:
    return sum(flag for flag in set(_FUTURE_FLAGS) if code.co_flags & flag)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _cut(text: str, node: Node) -> Source:
    first = _first_line(node)
    lines = text.split("\n")[
        first - 1 : node.end_lineno
    ]  # not splitlines: a form feed ends no line of Python
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return Source(text="\n".join(lines) + "\n", indent=indent, first_line=first, node=node)


def _first_line(node: Node) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _functions_of(cls: type) -> Iterator[FunctionType]:
    for member in vars(cls).values():
        for part in (member.fget, member.fset, member.fdel) if isinstance(member, property) else (member,):
            inner = getattr(part, "__func__", part)
            inner = inspect.unwrap(inner) if callable(inner) else inner
            if isinstance(inner, FunctionType):
                yield inner


def _is_generated(code: CodeType) -> bool:
    """Whether dataclasses, attrs or the like made it. `<ipython-input-1>`, `<python-input-1>` were typed."""
    return code.co_filename.startswith("<") and "-input-" not in code.co_filename


def _texts_of(namespace: dict[str, Any]) -> Iterator[str]:
    cells = namespace.get("In")  # IPython's list of what was executed, in that order
    if isinstance(cells, list):
        yield from (cell for cell in reversed(cells) if isinstance(cell, str))
    if isinstance(file := namespace.get("__file__"), str):
        yield "".join(linecache.getlines(file, namespace))


def _classes_named(tree: ast.AST, path: Sequence[str]) -> Iterator[ast.ClassDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and node.name == path[0]:
            if len(path) == 1:
                yield node
            else:
                yield from _classes_named(node, path[1:])
        elif not isinstance(node, Node):
            yield from _classes_named(node, path)


def _may_be_text_of(node: ast.ClassDef, cls: type, namespace: dict[str, Any]) -> bool:
    """Whether a text without methods can be that of a class; not, if `type(...)` has made another of its name
    since.
    """
    names = {base.__name__ for base in cls.__bases__}
    typed = [look_up(namespace, ast.unparse(base)) for base in node.bases]
    bare = not (node.bases or node.keywords or node.decorator_list)
    if (bare and names != {"object"}) or any(
        isinstance(base, type) and base.__name__ not in names for base in typed
    ):
        return False
    return _bound_for_good(node) <= vars(cls).keys()


def _bound_for_good(node: ast.ClassDef) -> set[str]:
    """Names that a class of this text must have; a field of a dataclass need not stay an attribute."""
    names = {part.name for part in node.body if isinstance(part, Node)}
    plain = [part for part in node.body if isinstance(part, ast.Assign)]
    return names | {target.id for part in plain for target in part.targets if isinstance(target, ast.Name)}


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    for part in node.body:
        if isinstance(part, ast.Assign):
            yield from ((target.id, part.value) for target in part.targets if isinstance(target, ast.Name))
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            yield part.target.id, part.value


def _class_level_names(node: ast.AST) -> set[str]:
    names: set[str] = set()
    for part in ast.iter_child_nodes(node):
        if isinstance(part, Node):
            names.add(part.name)
        elif isinstance(part, ast.alias):
            names.add((part.asname or part.name).partition(".")[0])
        elif isinstance(part, ast.Name):
            names.add(part.id)
        elif not isinstance(part, ast.Lambda):
            names |= _class_level_names(part)
    return names
