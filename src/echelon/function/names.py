"""Which names of the surrounding module a piece of Python text uses, and when it uses them.

Pure. The compiler's own symbol tables decide what is global, so that a local variable is never taken for a
global of the same name. Of a class body they say that it binds a name and reads it, and not which comes
first: `lr = lr` reads the module's name, and `@size.setter` below `def size` the class's own.
"""

from __future__ import annotations

import ast
import symtable
import warnings
from collections.abc import Iterator, Mapping, Sequence

from echelon.values import frozen

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSION = "genexpr"
_Classes = Mapping[tuple[int, str], set[str]]  # by line and name: what their bodies read first


def read_first(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements of a class body may read first."""
    found: set[str] = set()
    _walk(body, set(), found)
    return found


def _walk(body: Sequence[ast.stmt], bound: set[str], found: set[str]) -> set[str]:
    """Add what is read first to `found`; returns what is bound afterwards."""
    for node in body:
        found |= set(_read(node)) - bound
        bound = _after(node, bound, found)
    return bound


def _after(node: ast.stmt, bound: set[str], found: set[str]) -> set[str]:
    match node:
        case ast.If():
            return _walk(node.body, bound, found) & _walk(node.orelse, bound, found)
        case ast.Try() | ast.TryStar():
            ends = [_walk([*node.body, *node.orelse], bound, found)]
            for handler in node.handlers:
                own = {handler.name} if handler.name else set()
                ends.append(_walk(handler.body, bound | own, found))
            return _walk(node.finalbody, set.intersection(*ends), found)
        case ast.For() | ast.While() | ast.With() | ast.AsyncFor() | ast.AsyncWith():
            # A loop of a class body is taken to run at least once.
            inside = _walk(node.body, bound | set(_bound(node)), found)
            return _walk(getattr(node, "orelse", []), inside, found)
        case ast.Match():
            ends = [_walk(case.body, bound | set(_bound(case.pattern)), found) for case in node.cases]
            return bound.union(*ends)
        case ast.AnnAssign(value=None):
            return bound
    return bound | set(_bound(node))


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """What runs with a statement itself: no statement inside it, and no function's body."""
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.Lambda) and child is node.body:
            continue
        if not isinstance(child, ast.stmt | ast.excepthandler):
            yield child
            yield from _parts(child)


def _read(node: ast.stmt) -> Iterator[str]:
    for part in _parts(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            yield part.id
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield node.name
        return
    for part in (node, *_parts(node)):
        match part:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias():
                yield part.asname or part.name.partition(".")[0]
            case (
                ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name))
            ):
                yield name


@frozen
class Names:
    """The names that a text needs from its module."""

    now: frozenset[str]  # when it is executed: decorators, defaults, base classes, class bodies
    later: frozenset[str]  # when what it defines is called
    fields: frozenset[str]  # in annotations of a class body only: dataclasses and others read them
    hints: frozenset[str]  # in other annotations only
    dotted: frozenset[str]  # every `a.b.c` in it: some of them are modules inside packages
    imports: frozenset[str]  # modules that it imports itself; one that begins with a dot is relative


def names_in(text: str) -> Names:
    """The names in a text; raises SyntaxError when it is not valid Python by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
        table, classes = _table(text)
        without_hints, below = _table(f"from __future__ import annotations\n{text}")
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    used = list(_uses(without_hints, below, now=True))
    now = frozenset(name for name, is_now in used if is_now) - own
    later = frozenset(name for name, _ in used) - own - now
    fields = frozenset(_field_names(tree)) - own - now - later
    return Names(
        now=now,
        later=later,
        fields=fields,
        hints=frozenset(name for name, _ in _uses(table, classes, now=True)) - own - now - later - fields,
        dotted=frozenset(path for node in ast.walk(tree) if (path := _dotted(node))),
        imports=frozenset(name for node in ast.walk(tree) for name in _imported(node)),
    )


@frozen
class Used:
    """What a statement does with the names of its module."""

    now: frozenset[str]  # read when it is executed, also if it binds them
    later: frozenset[str]  # read when what it defines is called, also if it is read before
    binds: frozenset[str]
    may_bind: frozenset[str]  # by a function in it, with `global`


def names_used(text: str, *, hints: bool = True) -> Used:
    """What one statement or expression reads and binds; raises SyntaxError when it is none by itself. Without
    `hints`, annotations are not evaluated (`from __future__ import annotations`).
    """
    text = text if hints else f"from __future__ import annotations\n{text}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table, classes = _table(text)
    used = list(_uses(table, classes, now=True))
    bound = (symbol for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported())
    return Used(
        now=frozenset(name for name, is_now in used if is_now),
        later=frozenset(name for name, is_now in used if not is_now),
        binds=frozenset(symbol.get_name() for symbol in bound),
        may_bind=frozenset(_declared(table)),
    )


def _table(text: str) -> tuple[symtable.SymbolTable, _Classes]:
    """The symbols of a text, scope by scope, and of its classes what is read first. Since Python 3.12 the
    compiler inlines every comprehension but a generator expression, and its variables look like those around
    it: here all of them are generators.
    """
    tree = _Scopes().visit(ast.parse(text))
    text = ast.unparse(tree)
    classes = {
        (node.lineno, node.name): read_first(node.body)
        for node in (ast.walk(ast.parse(text)) if _has_class(tree) else ())
        if isinstance(node, ast.ClassDef)
    }
    return symtable.symtable(text, "source", "exec"), classes


def _has_class(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.ClassDef) for node in ast.walk(tree))


class _Scopes(ast.NodeTransformer):
    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        return ast.GeneratorExp(elt=node.elt, generators=node.generators)

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        self.generic_visit(node)
        return ast.GeneratorExp(elt=node.elt, generators=node.generators)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        self.generic_visit(node)
        pair = ast.Tuple(elts=[node.key, node.value], ctx=ast.Load())
        return ast.GeneratorExp(elt=pair, generators=node.generators)


def _declared(table: symtable.SymbolTable) -> Iterator[str]:
    for child in table.get_children():
        for symbol in child.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                yield symbol.get_name()
        yield from _declared(child)


def _uses(table: symtable.SymbolTable, classes: _Classes, *, now: bool) -> Iterator[tuple[str, bool]]:
    at_top = table.get_type() == "module"
    in_class = table.get_type() == "class"
    first = classes.get((table.get_lineno(), table.get_name()), set()) if in_class else set()
    for symbol in table.get_symbols():
        used = symbol.is_referenced() or (symbol.is_assigned() and not at_top)
        # `lr = lr` in a class body reads the global first, although the symbol table calls the name local.
        twofold = symbol.is_assigned() and symbol.get_name() in first
        if used and (at_top or symbol.is_global() or twofold):
            yield symbol.get_name(), now
    for child in table.get_children():
        runs_now = child.get_type() != "function" or child.get_name() == _COMPREHENSION
        yield from _uses(child, classes, now=now and runs_now)


def _field_names(tree: ast.AST) -> Iterator[str]:
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for field in (part for body in bodies for part in body if isinstance(part, ast.AnnAssign)):
        for part in ast.walk(field.annotation):
            if isinstance(part, ast.Name):
                yield part.id
            elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
                yield part.value  # a type that is defined further down, in quotes


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        inner = node.value.id if isinstance(node.value, ast.Name) else _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield "." * node.level + (node.module or "")
