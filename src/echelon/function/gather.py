"""Everything that a function of a notebook or a main script needs, or a cell, found by following names.

Starting from the function and its arguments, or from the names in a cell, each global name in use becomes one
piece of the script: an import, a definition, a value. Nothing is executed. While names are followed their
order is not known; `in_order` computes it afterwards.

A captured variable that several functions hold (a counter that one closure increments and another reads) is
refused: functions that are shipped separately each get a copy, which is wrong as soon as one assigns it.
"""

from __future__ import annotations
import __future__ as future

import builtins
import dis
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from echelon.errors import CannotShip
from echelon.function.definitions import STORED, Definition, Stored, closure, definition, expression
from echelon.function.modules import can_import, import_path, local_root, local_root_by_name, look_up, same
from echelon.function.names import Names
from echelon.function.values import Values
from echelon.values import frozen

RETURN = "_echelon_return"  # the script's function that keeps what the function returned
_REFUSED = {
    "get_ipython": ("exists in notebooks only (%magics and !commands call it)", "use subprocess, or nothing"),
    "display": ("exists in notebooks only", "use print"),
    "__file__": ("would be another file on the workers", "pass the path, or put the function in a module"),
}
_OF_EVERY_MODULE = {"__name__", "__doc__", "__builtins__", "__package__", "__spec__", "__loader__"}


@frozen
class Call:
    """The call that the script makes; `name` is the function's name in messages."""

    name: str
    function: object
    args: Sequence[tuple[str, object]]  # pairs of the name for messages and the value
    kwargs: Mapping[str, object]
    is_async: bool
    from_environment: str = ""  # a variable whose JSON object has further arguments, other in every run


@frozen
class CellCode:
    """Statements that the script executes instead of a call; `name` stands for them in messages."""

    name: str
    start: str  # the statements of the script that execute them
    names: Names  # what they use


@frozen
class ScriptParts:
    """The parts of the script, and what must be shipped with it."""

    imports: tuple[str, ...]
    pieces: tuple[str, ...]  # in an order in which they can be executed
    start: str  # the statements that call the function, or execute the cell
    values: bytes  # the stream that the pieces and then the call read, in order
    by_value: tuple[str, ...]  # what is shipped as bytecode, and so needs the same Python minor
    roots: tuple[Path, ...]  # folders of imported modules that are not installed on workers
    annotations_as_text: bool


@frozen
class Piece:
    """One statement, or a few, that bind a name of the script."""

    text: str
    stored: tuple[tuple[str, object], ...] = ()  # the values that it reads, in the order of its reading
    now: frozenset[str] = frozenset()  # names that it uses when it is executed
    later: frozenset[str] = frozenset()  # names that what it defines uses when called
    fields: frozenset[str] = frozenset()  # names in annotations of a class body
    hints: frozenset[str] = frozenset()  # names in its other annotations
    is_import: bool = False


def in_order(pieces: Mapping[str, Piece], typed: Mapping[str, int]) -> list[str]:
    """As typed, except that what a piece uses at once comes before it, together with all that this uses.

    A decorator or a base class may call anything that it refers to while the next definition is executed.
    Only what itself needs that definition comes after it.
    """
    ordered: dict[str, None] = {}
    begun: set[str] = set()

    def known(names: Iterable[str]) -> list[str]:
        found = (name for name in names if name in pieces)
        return sorted(found, key=lambda name: (typed.get(name, len(typed)), name))

    def emit(name: str) -> None:
        if name in begun:
            return
        begun.add(name)
        at_once = _at_once(pieces[name])
        for used in known(at_once):
            emit(used)
        for used in known(_reached(at_once, pieces, lambda piece: _at_once(piece) | piece.later)):
            if not _reached({used}, pieces, _at_once) & (begun - ordered.keys()):
                emit(used)
        ordered[name] = None

    for name in known(pieces):
        emit(name)
    return list(ordered)


def _at_once(piece: Piece) -> frozenset[str]:
    return piece.now | piece.fields | piece.hints


def _reached(
    start: Iterable[str], pieces: Mapping[str, Piece], steps: Callable[[Piece], frozenset[str]]
) -> set[str]:
    found = {name for name in start if name in pieces}
    waiting = list(found)
    while waiting:
        new = (steps(pieces[waiting.pop()]) & pieces.keys()) - found
        found |= new
        waiting += new
    return found


class CapturedVariables:
    """The holders of each variable. A unit is a function, or several that share their variables."""

    def __init__(self) -> None:
        self._holders: dict[int, dict[object, str]] = {}  # by the identity of the variable's cell
        self._assigned: dict[int, str] = {}

    def note(self, function: FunctionType, unit: object) -> None:
        """Record that the function is shipped as this unit, or as part of it."""
        assigned = _assigned_in(function.__code__)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._holders.setdefault(id(cell), {})[unit] = function.__name__
            if variable in assigned:
                self._assigned[id(cell)] = variable

    def torn_apart(self) -> str:
        """The functions that would lose a shared variable, for a message; empty if there are none."""
        for cell, variable in self._assigned.items():
            if len(holders := self._holders[cell]) > 1:
                return f"{' and '.join(map(repr, holders.values()))} share the variable {variable!r}"
        return ""


def _assigned_in(code: CodeType) -> set[str]:
    steps = (step for step in dis.get_instructions(code) if step.opname in ("STORE_DEREF", "DELETE_DEREF"))
    inner = (_assigned_in(part) for part in code.co_consts if isinstance(part, CodeType))
    return {step.argval for step in steps}.union(*inner) & set(code.co_freevars)


def gather(call: Call | CellCode, namespace: dict[str, Any]) -> ScriptParts:
    """Follow all names from the call or the cell; raises CannotShip, naming what cannot be shipped."""
    apart: set[int] = set()
    while True:
        gathering = _Gathering(call, namespace, apart)
        gathered = gathering.gathered()
        shared = gathering.values.shared() - apart
        if not shared:
            return gathered
        # Two literals would be two lists where there was one: repeat, with these in the stream.
        apart |= shared


class _Gathering:
    def __init__(self, call: Call | CellCode, namespace: dict[str, Any], apart: Iterable[int]) -> None:
        self.values = Values(call.name, apart, self._name_in_script, self._met)
        self._call, self._namespace = call, namespace
        self._pieces: dict[str, Piece] = {}
        self._waiting: deque[tuple[str, str, bool]] = deque()  # a name, its user, whether as a field's type
        self._hints: set[str] = set()
        self._definitions: dict[str, Definition | None] = {}
        functions = [(name, value) for name, value in namespace.items() if isinstance(value, FunctionType)]
        self._functions = {id(value): name for name, value in reversed(functions)}
        self._submodules: dict[str, None] = {}
        self._roots: dict[Path, None] = {}
        self._variables = CapturedVariables()
        self._annotations_as_text = namespace.get("annotations") is future.annotations

    def gathered(self) -> ScriptParts:
        stored: Stored = []
        call = self._call
        start = self._cell(call) if isinstance(call, CellCode) else self._start(call, stored)
        self._follow()
        if torn_apart := self._variables.torn_apart():
            hint = "keep it in a global variable, or in an object"
            raise CannotShip(f"cannot send {self._call.name!r}: {torn_apart}", hint=hint)
        typed = {name: position for position, name in enumerate(self._namespace)}
        pieces = [self._pieces[name] for name in in_order(self._pieces, typed)]
        values = [value for piece in pieces for _, value in piece.stored] + [value for _, value in stored]
        return ScriptParts(
            imports=(*self._submodules, *(piece.text for piece in pieces if piece.is_import)),
            pieces=tuple(piece.text for piece in pieces if not piece.is_import),
            start=start,
            values=self.values.stream(values),
            by_value=tuple(self.values.by_value),
            roots=tuple(self._roots),
            annotations_as_text=self._annotations_as_text,
        )

    def _cell(self, cell: CellCode) -> str:
        self._imports_inside(cell.name, cell.names, {})
        self._need(cell.names.now | cell.names.later, cell.name)
        self._need(cell.names.fields, cell.name, as_fields=True)
        self._hints |= cell.names.hints
        return cell.start

    def _start(self, call: Call, stored: Stored) -> str:
        head, opening = self._function(call, stored)
        arguments = self._arguments(call, stored)
        if call.from_environment:
            opening += "import json as _echelon_json\nimport os as _echelon_os\n\n"
            more = f"**_echelon_json.loads(_echelon_os.environ[{call.from_environment!r}])"
            arguments = f"{arguments}, {more}" if arguments else more
        text = f"{head}({arguments})"
        if call.is_async:
            opening += "import asyncio as _echelon_asyncio\n\n"
            text = f"_echelon_asyncio.run({text})"
        return f"{opening}{RETURN}({text})\n"

    def _function(self, call: Call, stored: Stored) -> tuple[str, str]:
        """The expression for the function, and the import that it needs."""
        function, namespace = call.function, self._namespace
        if (found := import_path(function)) is not None:
            module, path = found
            root, *rest = path.split(".")
            self._met(sys.modules[module])
            clash = root in namespace and namespace[root] is not getattr(sys.modules[module], root)
            if clash:
                opening, root = f"from {module} import {root} as _echelon_function\n\n", "_echelon_function"
            else:
                opening = f"from {module} import {root}\n\n"
            return ".".join([root, *rest]), opening
        if (known := self._name_in_script(function)) is not None:
            self._need({known.partition(".")[0]}, self._call.name)
            return known, ""
        if isinstance(function, FunctionType) and function.__name__.isidentifier():
            taken = function.__name__ in namespace or hasattr(builtins, function.__name__)
            name = f"{function.__name__}_" if taken else function.__name__
            if (written := closure(name, function, namespace, self.values.literal)) is not None:
                self._add(name, self._defined(name, written))
                return name, ""
        self._need(self.values.probe(self._call.name, function, "it", "it"), self._call.name)
        return expression(self._call.name, function, lambda _: None, stored), ""

    def _arguments(self, call: Call, stored: Stored) -> str:
        mine: Stored = []

        def write(value: object) -> str | None:
            if (text := self.values.literal(value)) is None and (text := self._name_in_script(value)):
                self._need({text.partition(".")[0]}, self._call.name)
            return text

        parts = [expression(label, value, write, mine) for label, value in call.args]
        keywords = {
            keyword: expression(keyword, value, write, mine) for keyword, value in call.kwargs.items()
        }
        if all(keyword.isidentifier() and not iskeyword(keyword) for keyword in keywords):
            parts += [f"{keyword}={text}" for keyword, text in keywords.items()]
        else:
            parts.append(f"**{{{', '.join(f'{keyword!r}: {text}' for keyword, text in keywords.items())}}}")
        for label, value in mine:
            self._need(self.values.probe(label, value, f"its argument {label!r}"), self._call.name)
        stored += mine
        return ", ".join(parts)

    def _need(self, names: Iterable[str], user: str, *, as_fields: bool = False) -> None:
        self._waiting.extend((name, user, as_fields) for name in sorted(names))

    def _follow(self) -> None:
        while self._waiting:
            name, user, is_field = self._waiting.popleft()
            if name not in self._pieces and (piece := self._piece(name, user, is_field=is_field)) is not None:
                self._add(name, piece)
        for name in sorted(
            self._hints - self._pieces.keys()
        ):  # last, since an annotation alone needs no definition
            if name not in self._namespace:
                self._annotations_as_text |= not hasattr(
                    builtins, name
                )  # a type that only a type checker knows
            elif (piece := self._plain_piece(name)) is not None:
                self._pieces[name] = piece
            else:
                self._annotations_as_text = True

    def _add(self, name: str, piece: Piece) -> None:
        self._pieces[name] = piece
        self._need(piece.now | piece.later, name)
        self._need(piece.fields, name, as_fields=True)
        self._hints |= piece.hints

    def _piece(self, name: str, user: str, *, is_field: bool) -> Piece | None:
        who = "it" if user == self._call.name else repr(user)
        self._refuse_special(name, who)
        if name not in self._namespace or name in _OF_EVERY_MODULE:
            self._annotations_as_text |= is_field and not hasattr(builtins, name)
            return None  # a builtin; or a NameError there, as it would be here
        if (piece := self._plain_piece(name)) is not None:
            return piece
        value = self._namespace[name]
        if _guards_builtin(name, value):
            return None
        if (path := self._name_in_script(value)) is not None and path != name:
            return Piece(text=f"{name} = {path}\n", now=frozenset({path.partition(".")[0]}))
        if (written := self._definition(name)) is not None:
            return self._defined(name, written)
        if is_field:  # an annotation kept as text needs no value
            self._annotations_as_text = True
            return None
        now = self.values.probe(name, value, f"{who} uses {name!r}, which")
        return Piece(text=f"{name} = {STORED}({name!r})\n", stored=((name, value),), now=now)

    def _plain_piece(self, name: str) -> Piece | None:
        value = self._namespace[name]
        if (text := self.values.literal(value)) is not None:
            return Piece(text=f"{name} = {text}\n")
        text = self._import(name, value)
        return Piece(text=text, is_import=True) if text is not None else None

    def _refuse_special(self, name: str, who: str) -> None:
        in_notebooks_only = name == "display" and name not in self._namespace and hasattr(builtins, name)
        if name == "get_ipython" or in_notebooks_only or (name == "__file__" and name in self._namespace):
            why, hint = _REFUSED[name]
            raise CannotShip(f"cannot send {self._call.name!r}: {who} uses {name!r}, which {why}", hint=hint)

    def _import(self, name: str, value: object) -> str | None:
        if isinstance(value, ModuleType):
            self._met(value)
            if not can_import(value):
                return None
            return f"import {name}\n" if value.__name__ == name else f"import {value.__name__} as {name}\n"
        if (found := import_path(value)) is None:
            return None
        module, path = found
        self._met(sys.modules[module])
        first, _, rest = path.partition(".")
        renamed = f" as {name}" if first != name else ""
        text = f"from {module} import {first}{renamed}\n"
        return text + (f"{name} = {name}.{rest}\n" if rest else "")

    def _defined(self, name: str, written: Definition) -> Piece:
        names, now = written.names, written.names.now
        self._imports_inside(name, names, written.captured)
        for member in written.family:
            self._variables.note(member, unit=name)
        for label, value in written.stored:
            now |= self.values.probe(label, value, f"{name!r} uses {label!r}, which")
        return Piece(
            text=written.text,
            stored=written.stored,
            now=now,
            later=names.later,
            fields=names.fields,
            hints=names.hints,
        )

    def _imports_inside(self, name: str, names: Names, captured: Mapping[str, object]) -> None:
        for module_name in sorted(names.imports):
            if module_name.startswith("."):
                problem = f"{name!r} imports from {module_name!r}, which is relative"
                hint = "write the import with the full name of the module"
                raise CannotShip(f"cannot send {self._call.name!r}: {problem}", hint=hint)
            if (root := local_root_by_name(module_name)) is not None:
                self._roots[root] = None
        # `import concurrent.futures` binds `concurrent`, and importing that alone is not enough.
        for path in sorted(names.dotted):
            first, *rest = path.split(".")
            package = captured.get(first, self._namespace.get(first))
            if not isinstance(package, ModuleType):
                continue
            for length in range(len(rest), 0, -1):
                inner = ".".join([package.__name__, *rest[:length]])
                module = sys.modules.get(inner)
                if module is not None and module is look_up(vars(package), ".".join(rest[:length])):
                    self._submodules[f"import {inner}\n"] = None
                    break

    def _definition(self, name: str) -> Definition | None:
        if name not in self._definitions:
            written = definition(name, self._namespace.get(name), self._namespace, self.values.literal)
            self._definitions[name] = written
        return self._definitions[name]

    def _name_in_script(self, value: object) -> str | None:
        path = getattr(value, "__qualname__", None)
        if not isinstance(path, str) or not same(look_up(self._namespace, path), value):
            path = self._functions.get(id(value))  # a closure, or what a decorator made
        if path is None or self._definition(path.partition(".")[0]) is None:
            return None
        return path

    def _met(self, module: ModuleType | FunctionType) -> None:
        if isinstance(module, FunctionType):
            self._variables.note(module, unit=id(module))
            return
        if module.__name__ in ("__main__", self._namespace.get("__name__")):
            return
        if (root := local_root(module)) is not None:
            self._roots[root] = None
        elif not can_import(module) and getattr(module, "__file__", None) and module.__name__ in sys.modules:
            problem = f"it needs the module {module.__name__!r}, and no import leads to {module.__file__}"
            hint = "give the file the name of the module"
            raise CannotShip(f"cannot send {self._call.name!r}: {problem}", hint=hint)


def _guards_builtin(name: str, value: object) -> bool:
    """Whether it is a builtin that the notebook has wrapped, as IPython does with `open`."""
    wrapped = getattr(value, "__wrapped__", None)
    shell = str(getattr(value, "__globals__", {}).get("__name__")).partition(".")[0] == "IPython"
    return shell and wrapped is not None and wrapped is getattr(builtins, name, None)
