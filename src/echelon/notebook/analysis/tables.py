"""Names of a notebook that are one memory where they are made, and copies of each other in every later step:
arrays of a pandas table, a table made of an array, before pandas 3 also columns and slices. It is told where
a later step changes one of them in place and the other is read after that. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from echelon.notebook.analysis.parameters import Code
from echelon.notebook.analysis.steps import Gathered, StepCells

_LIBRARY = ("pd", "pandas")
_MAKERS = ("DataFrame", "Series")
_SAME = ("asarray", "from_numpy", "as_tensor")  # called with an array, they give one in its memory
_RESHAPED = ("reshape", "ravel", "squeeze", "view", "transpose", "swapaxes")
_CHANGING = ("fill", "sort", "partition", "put", "shuffle")


def find_copies(gathered: Gathered, *, views: bool) -> Iterator[str]:
    """Warnings, each with its cell. With `views`, parts of tables share their memory, too, as they do before
    pandas 3.
    """
    tables = {name for step in gathered.steps for code in step.cells for name in _tables(_tree(code))}
    reader = _Reader(tables, views)
    for number, step in enumerate(gathered.steps):
        for code in step.cells:
            for one, other in dict.fromkeys(reader.pairs(_tree(code))):
                if where := reader.changed_in(gathered.steps[number + 1 :], one, other):
                    told = f"{one!r} may share the memory of {other!r}, and in step {where!r}, which changes"
                    yield f"cell {code.cell}: {told} one of them, it is a copy"


class _Reader:
    def __init__(self, tables: set[str], views: bool) -> None:
        self._tables, self._views = tables, views

    def pairs(self, tree: ast.Module) -> Iterator[tuple[str, str]]:
        """A name that is given a value, and the name whose memory that is."""
        for node in tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name, value in _matched(target, node.value):
                    yield from ((name, other) for other in self._shared(value) if other != name)

    def _shared(self, value: ast.expr) -> Iterator[str]:
        """The names whose memory a value is."""
        match value:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                for part in parts:
                    yield from self._shared(part)
            case ast.Dict(values=parts):
                for part in parts:
                    yield from self._shared(part)
            case ast.Attribute(attr="values", value=table):
                yield from _root(table)
            case ast.Call(func=ast.Attribute(attr="to_numpy", value=table)):
                yield from _root(table)
            case ast.Call(func=ast.Attribute(attr=called, value=ast.Name(id=library)), args=[first, *_]):
                if library in _LIBRARY and called in _MAKERS:
                    if isinstance(first, ast.Name) and (self._views or _asks_for_none(value)):
                        yield first.id
                elif called in _SAME:
                    yield from self._shared(first)
                    yield from (name for name in _root(first) if name in self._tables)
            case ast.Call(func=ast.Attribute(attr=called, value=of)) if called in _RESHAPED:
                yield from self._shared(of)
            case ast.Attribute(attr="T", value=of) | ast.Subscript(value=of):
                yield from self._shared(of)
        if self._views and _is_part(value):
            yield from (name for name in _root(value) if name in self._tables)

    def changed_in(self, steps: Sequence[StepCells], one: str, other: str) -> str:
        """The step that changes one of two names in place before the other is read; "" if there is none."""
        changes: dict[str, str] = {}
        for step in steps:
            for statement in (each for code in step.cells for each in _tree(code).body):
                changes.update(dict.fromkeys(self._changed(statement) & {one, other}, step.name))
                named = [each for each in ast.walk(statement) if isinstance(each, ast.Name)]
                read = {each.id for each in named if isinstance(each.ctx, ast.Load)}
                for changed, left in ((one, other), (other, one)):
                    if changed in changes and left in read:
                        return changes[changed]
                bound = {each.id for each in named if not isinstance(each.ctx, ast.Load)}
                if {one, other} & (bound - self._changed(statement)):
                    return ""  # it is another value from here on
        return ""

    def _changed(self, statement: ast.stmt) -> set[str]:
        """Names of what a statement changes in place."""
        found: set[str] = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                if not _is_column(node) or (self._views and isinstance(statement, ast.AugAssign)):
                    found.update(_root(node))
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found |= {node.target.id} - self._tables
            elif isinstance(node, ast.Call) and _method_of(node) in _CHANGING:
                of = node.args[:1] if _method_of(node) == "shuffle" else [node.func]
                found.update(name for each in of for name in _root(each))
        return found


def _matched(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for part, its in zip(target.elts, value.elts, strict=False):
            yield from _matched(part, its)


def _tables(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and getattr(called.value, "id", "") in _LIBRARY:
                yield from (each.id for each in node.targets if isinstance(each, ast.Name))


def _method_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _root(value: ast.expr) -> list[str]:
    """The name that a chain of attributes and subscripts begins with."""
    while isinstance(value, ast.Attribute | ast.Subscript):
        value = value.value
    return [value.id] if isinstance(value, ast.Name) else []


def _asks_for_none(call: ast.Call) -> bool:
    return any(each.arg == "copy" and ast.unparse(each.value) == "False" for each in call.keywords)


def _is_part(value: ast.expr) -> bool:
    """Whether it is a column or a slice of something: a mask and a list of columns make copies."""
    if isinstance(value, ast.Subscript):
        index = value.slice.elts[0] if isinstance(value.slice, ast.Tuple) else value.slice
        return _is_column(value) or isinstance(index, ast.Slice)
    return isinstance(value, ast.Attribute) and value.attr == "T"


def _is_column(node: ast.Subscript) -> bool:
    """`table["a"]`; setting it puts another column in its place."""
    text = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    return text and isinstance(node.value, ast.Name)


def _tree(code: Code) -> ast.Module:
    return ast.parse(code.text)
