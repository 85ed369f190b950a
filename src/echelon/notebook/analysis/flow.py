"""Which names the code of a step needs from elsewhere, which it binds, and which it changes. Pure.

The code is walked in its order: a name is needed where it may be read before the step itself has bound it.
The compiler's symbol tables say what a statement reads and binds (`function/names.py`). What a function reads
is read when it is called, so those names belong to everything that may call it, in later steps too."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache

from echelon.function.names import names_used
from echelon.notebook.analysis.cells import CellLine, InvalidNotebook
from echelon.notebook.analysis.magics import OWN
from echelon.notebook.analysis.parameters import Code
from echelon.values import frozen

_NAMESPACES = ("dir", "globals", "locals", "vars")
BUILTIN = frozenset(dir(builtins)) | {"display", "__name__", "__doc__", "__builtins__"}
# Methods that change what they are called on, in Python and in the usual libraries.
_CHANGING = frozenset((
    "add", "append", "appendleft", "clear", "compile", "difference_update", "discard", "extend", "extendleft",
    "fill", "fit", "fit_transform", "insert", "intersection_update", "load_state_dict", "load_weights",
    "partial_fit", "pop", "popitem", "popleft", "remove", "resize", "reverse", "rotate", "set_weights",
    "setdefault", "sort", "step", "train_on_batch", "update", "write", "zero_grad",
))  # fmt: skip
_LEAVING = (ast.Raise, ast.Return, ast.Continue, ast.Break)


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


@frozen
class Flow:
    """What a step's code does with the names of the notebook."""

    needs: dict[str, CellLine]  # read before they are bound: they must come from elsewhere
    later: dict[str, CellLine]  # read by functions of the step that may never be called
    wants: frozenset[str]  # perhaps read before they are bound: they come from elsewhere if they can
    reads: frozenset[str]  # read at all
    touches: frozenset[str]  # read when the cells run, and not only when something that they bind is called
    binds: frozenset[str]  # bound, perhaps, or declared: `x: int`
    changes: frozenset[
        str
    ]  # bound, perhaps, or changed in a way that can be seen, such as x[0] = 1 or x.append(1)
    calls: dict[str, frozenset[str]]  # what is read later, when something bound here is called
    holds: dict[str, frozenset[str]]  # the names whose functions something bound here may hold
    classes: frozenset[str] = frozenset()
    stars: tuple[str, ...] = ()  # star imports, which steps after this one repeat
    generators: dict[str, CellLine] = field(
        default_factory=dict
    )  # names bound to what cannot be kept, and where


def flow_of(cells: Sequence[Code], classes: Iterable[str] = (), variables: Iterable[str] = ()) -> Flow:
    """Walk the cells; `classes` are those that the prelude defines, `variables` names that the notebook binds
    although Python has them too, such as `input`.
    """
    return _walked(tuple(cells), frozenset(classes), BUILTIN.difference(variables))


@lru_cache(maxsize=1024)  # an editor asks again after every change, which is one of a single step
def _walked(cells: tuple[Code, ...], classes: frozenset[str], builtin: frozenset[str]) -> Flow:
    walk = _Walk(set(classes), builtin)
    bound: set[str] = set()
    for code in cells:
        walk.cell, tree = code.cell, _module(code.text)
        walk.guarded |= guarded_names(tree)
        bound = walk.block(tree.body, bound)
    return walk.result()


def _module(text: str) -> ast.Module:
    """The tree, with `await` taken off: cells may await at the top, which symbol tables refuse."""
    tree = _WithoutAwait().visit(ast.parse(text))
    assert isinstance(tree, ast.Module)
    return tree


class _WithoutAwait(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return self.visit(node.value)  # type: ignore[no-any-return]

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(ast.For(**dict(ast.iter_fields(node))), node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(ast.With(**dict(ast.iter_fields(node))), node)


class _Walk:
    def __init__(self, classes: set[str], builtin: frozenset[str]) -> None:
        self.cell = 0
        self._builtin = builtin
        self.guarded: set[str] = set()  # the code can do without them
        self._classes = classes  # and functions whose results may hold functions
        self._hints = True
        self._generating: set[str] = set()
        self._needs: dict[str, CellLine] = {}
        self._later: dict[str, CellLine] = {}
        self._wants: set[str] = set()
        self._may: set[str] = set()
        self._declared: set[str] = set()  # by an annotation alone
        self._changes: set[str] = set()
        self._reads: set[str] = set()
        self._touches: set[str] = set()
        self._calls: dict[str, set[str]] = {}
        self._holds: dict[str, set[str]] = {}
        self._stars: list[str] = []
        self._generators: dict[str, CellLine] = {}

    def result(self) -> Flow:
        later = {name: place for name, place in self._later.items() if name not in self._needs}
        return Flow(
            needs=self._needs,
            later=later,
            wants=frozenset((self._wants | later.keys()) - self._needs.keys()),
            reads=frozenset(self._reads),
            touches=frozenset(self._touches),
            binds=frozenset(self._may | self._declared),
            changes=frozenset(self._may | self._changes),
            calls={name: frozenset(read) for name, read in self._calls.items() if read},
            holds={name: frozenset(held) for name, held in self._holds.items() if held},
            classes=frozenset(self._classes),
            stars=tuple(self._stars),
            generators=self._generators,
        )

    def block(self, statements: Sequence[ast.stmt], bound: set[str]) -> set[str]:
        """Walk statements; takes and returns the names that are surely bound."""
        for statement in statements:
            bound = self._statement(statement, set(bound))
        return bound

    def _statement(self, node: ast.stmt, bound: set[str]) -> set[str]:
        self._note_changes(node)
        match node:
            case ast.If():
                self._read(node.test, bound)
                branches = [(part, self.block(part, bound)) for part in (node.body, node.orelse)]
                return _together(branches, bound)
            case ast.For() | ast.While():
                return self._loop(node, bound)
            case ast.With():
                for item in node.items:
                    self._read(item.context_expr, bound)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, bound)
                return self.block(node.body, bound)
            case ast.Try() | ast.TryStar():
                done = self.block([*node.body, *node.orelse], bound)
                self._may |= done
                ways: list[tuple[Sequence[ast.stmt], set[str]]] = [(node.body, done)]
                for handler in node.handlers:
                    inside = set(bound) | ({handler.name} if handler.name else set())
                    if handler.type is not None:
                        self._read(handler.type, bound)
                    ways.append((handler.body, self.block(handler.body, inside)))
                return self.block(node.finalbody, _together(ways, bound))
            case ast.Match():
                return self._match(node, bound)
            case ast.AnnAssign(target=ast.Name(id=name), value=None):  # `x: int` leaves x as it was
                self._declared.add(name)
                if self._hints:
                    self._read(node.annotation, bound)
                return bound
            case ast.Delete():
                for target in node.targets:
                    self._read(target, bound)
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                self._changes |= names
                return bound - names
        self._note_star(node)
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            self._hints = self._hints and all(alias.name != "annotations" for alias in node.names)
            return bound
        self._read(node, bound)
        return bound

    def _match(self, node: ast.Match, bound: set[str]) -> set[str]:
        self._read(node.subject, bound)
        for case in node.cases:
            names = _captured(case.pattern)
            self._may |= names
            inside = bound | names
            for part in (*_compared(case.pattern), *filter(None, [case.guard])):
                self._read(part, inside)
            self.block(case.body, inside)
        return bound

    def _loop(self, node: ast.For | ast.While, bound: set[str]) -> set[str]:
        self._read(node.iter if isinstance(node, ast.For) else node.test, bound)
        inside = set(bound)
        if isinstance(node, ast.For):
            self._bind(node.target, inside)
        known = (dict(self._needs), set(self._wants))
        self.block(node.body, inside)  # the names that an earlier pass of the loop may have bound
        self._needs, self._wants = known
        self.block(node.body, inside)
        self.block(node.orelse, bound)
        return bound

    def _read(self, node: ast.AST, bound: set[str]) -> None:
        """One statement or expression without statements inside but those of functions and classes."""
        used = names_used(ast.unparse(node), hints=self._hints)
        place = CellLine(cell=self.cell, line=getattr(node, "lineno", 1))
        inside = assigned_inside(node)  # where in the statement, matters little
        self._wants |= (used.now & inside) - bound
        for name in sorted(used.now - bound - inside - self._builtin):
            self._need(name, place)
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id not in bound
        ):
            self._need(node.target.id, place)
        self._reads |= (used.now | used.later) - self._builtin
        self._touches |= used.now - self._builtin
        if not _only_defines(node):
            self._touches |= used.later - self._builtin
        for name in sorted(used.later - self._builtin):
            if name in self.guarded:
                self._wants.add(name)
            elif not name.startswith(OWN):
                self._later.setdefault(name, place)
        self._may |= used.binds | used.may_bind
        bound |= used.binds
        if isinstance(node, ast.ClassDef):
            self._classes.add(node.name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if _yields(node):
                self._generating.add(node.name)
            if _makes_functions(node, self._classes):
                self._classes.add(node.name)
        held = _held(node, self._classes) - self._builtin
        for name in used.binds:
            self._calls.setdefault(name, set()).update(used.later - self._builtin)
            self._holds.setdefault(name, set()).update(held - {name})
            self._generators.pop(name, None)
            if self._cannot_be_kept(node):
                self._generators[name] = place

    def _need(self, name: str, place: CellLine) -> None:
        if name.startswith(OWN):
            return
        if name in self._may | self._declared | self.guarded:
            self._wants.add(name)
        else:
            self._needs.setdefault(name, place)

    def _bind(self, target: ast.expr, bound: set[str]) -> None:
        names = {
            node.id
            for node in ast.walk(target)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for node in ast.walk(target):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load)
                and node.id not in bound | self._builtin
            ):
                self._need(node.id, CellLine(cell=self.cell, line=node.lineno))
        self._may |= names
        bound |= names

    def _note_changes(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        for part in _outside_functions(node):
            target: ast.AST | None = None
            if isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store | ast.Del):
                target = part
            elif isinstance(part, ast.AugAssign):
                target = part.target
            elif (
                isinstance(part, ast.Call)
                and isinstance(part.func, ast.Attribute)
                and part.func.attr in _CHANGING
            ):
                target = part.func
            while isinstance(target, ast.Subscript | ast.Attribute):
                target = target.value
            if isinstance(target, ast.Name):
                self._changes.add(target.id)

    def _note_star(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            self._stars.append(ast.unparse(node))

    def _cannot_be_kept(self, node: ast.AST) -> bool:
        """Whether a name is bound to a generator or an open file."""
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            return value.func.id in self._generating or value.func.id == "open"
        return isinstance(value, ast.GeneratorExp)


def _together(ways: Iterable[tuple[Sequence[ast.stmt], set[str]]], bound: set[str]) -> set[str]:
    """What is bound after branches: by all that come to their end."""
    ends = [names for body, names in ways if not (body and isinstance(body[-1], _LEAVING))]
    return set.intersection(*ends) if ends else bound


def _captured(pattern: ast.pattern) -> set[str]:
    names = (getattr(node, "name", None) or getattr(node, "rest", None) for node in ast.walk(pattern))
    return {name for name in names if isinstance(name, str)}


def _compared(pattern: ast.pattern) -> Iterator[ast.expr]:
    """What a pattern looks up: its classes, keys and constants."""
    for child in ast.iter_child_nodes(pattern):
        if isinstance(child, ast.pattern):
            yield from _compared(child)
        elif isinstance(child, ast.expr):
            yield child


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that run with it, without statements inside: they are walked by themselves."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.Lambda | ast.excepthandler | ast.match_case):
            yield from _outside_functions(child)


def _held(node: ast.AST, classes: set[str]) -> set[str]:
    """Names whose functions a value may hold: all that are read but not called, and classes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        parts: list[ast.AST] = [*node.decorator_list]
        if isinstance(node, ast.ClassDef):
            parts += [*node.bases, *(each.value for each in node.keywords)]
        return {part.id for each in parts for part in ast.walk(each) if isinstance(part, ast.Name)}
    called = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
        and isinstance(part.ctx, ast.Load)
        and (id(part) not in called or part.id in classes)
    }


def _makes_functions(function: ast.FunctionDef | ast.AsyncFunctionDef, classes: set[str]) -> bool:
    """Whether what a function returns may hold functions: it defines some, or makes objects of classes."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    parts = (part for statement in function.body for part in ast.walk(statement))
    return any(
        isinstance(part, inner) or (isinstance(part, ast.Name) and part.id in classes) for part in parts
    )


def _only_defines(node: ast.AST) -> bool:
    """Whether functions in a statement are called by their names alone, as in `f = lambda: x`."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    defining = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(node, defining) or isinstance(value, ast.Lambda)


def _yields(function: ast.AST) -> bool:
    """Whether calling a function makes a generator."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.Yield | ast.YieldFrom):
            return True
        inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
        if not inner and _yields(child):
            return True
    return False


def names_needed(text: str, there: Container[str]) -> frozenset[str]:
    """The names that a cell reads before it binds them, or may; `there` are those that the notebook has.

    Raises InvalidNotebook for one that nothing defines: each worker would fail with a NameError. Text that is
    no Python has none.
    """
    try:
        flow = flow_of([Code(cell=1, text=text)])
    except SyntaxError:
        return frozenset()
    missing = {} if flow.stars else {name: at for name, at in flow.needs.items() if name not in there}
    for name, place in missing.items():
        hint = "run the cell that defines it first"
        raise InvalidNotebook(f"the cell, line {place.line}", f"{name!r} is not defined", hint=hint)
    return frozenset(name for name in (*flow.needs, *flow.wants) if name in there)
