"""Names that code reads only if they are there: it asks before, or is ready for a NameError. Pure."""

from __future__ import annotations

import ast

_NAMESPACES = ("dir", "globals", "locals", "vars")


def guarded_names(tree: ast.AST) -> set[str]:
    """The names that may be missing: asked for as in `"x" in globals()`, or read where NameError is
    caught.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(map(_is_namespace, node.comparators)):
            left = node.left
            if isinstance(left, ast.Constant) and isinstance(left.value, str):
                found.add(left.value)
        elif isinstance(node, ast.Try) and any(map(_catches_name_error, node.handlers)):
            found |= {part.id for each in node.body for part in ast.walk(each) if isinstance(part, ast.Name)}
    return found


def assigned_inside(node: ast.AST) -> set[str]:
    """The names that expressions of a statement bind, as in `(n := 3) + n`."""
    return {
        part.target.id
        for part in ast.walk(node)
        if isinstance(part, ast.NamedExpr) and isinstance(part.target, ast.Name)
    }


def _is_namespace(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMESPACES


def _catches_name_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return False
    return any(isinstance(part, ast.Name) and part.id == "NameError" for part in ast.walk(handler.type))
