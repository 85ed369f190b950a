"""Which names a class body may read before it has bound them itself: those it gets from its module. Pure.

The compiler's symbol tables say that a class binds a name and reads it, and not which comes first: `lr = lr`
reads the module's name, and `@size.setter` below `def size` the class's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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
