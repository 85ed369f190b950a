"""A Python function as a generated script with the files beside it.

The engines run scripts only, so a function becomes one, and so does a cell of a notebook. Each object is
shipped in one of three ways. An object with a name in a file is shipped by that name, with its project. One
typed in a notebook or a main script is shipped as source, with the values it uses. One with neither (a
lambda, a function from an exec) is shipped as bytecode by cloudpickle, which only the same Python minor
version can read.

Not detected: names reached through strings (`globals()["x"]`, `eval`), and attributes of a typed class that
are not plain data and were replaced later; those are computed again from the text.

    modules.py       where an object can be imported from
    literals.py      plain data as text
    source.py        the text of a function or class, verified
    names.py         which names a text uses
    definitions.py   a function or class written for another script
    values.py        the pickle stream, and what cannot be shipped
    returns.py       what a function says that it returns
    gather.py        follows the names, and puts what was found in order
    render.py        the script's text
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import BuiltinFunctionType, MappingProxyType, MethodType
from typing import Any

from echelon.codecs import writing
from echelon.errors import CannotShip
from echelon.function.gather import Call, CellCode, ScriptParts, gather
from echelon.function.modules import can_import, import_path, project_of, search_folders
from echelon.function.names import names_in
from echelon.function.render import BY_VALUE, CELL, VALUES, WRITER, execute_cell, render
from echelon.function.values import cloudpickle_files, definitions_by_value
from echelon.values import frozen

__all__ = ["FunctionScript", "script_of", "script_of_cell"]


@frozen
class FunctionScript:
    """A function as a script, started as `python FILE.py`; in a run, what the function returns is kept among
    the results.

    The script reads `ECHELON_PROJECT`, the path of `project` on the worker; without it, it uses the project's
    path on this machine. `files` lie in the script's own folder, best one that holds nothing else.
    """

    name: str  # the function's plain name
    text: str  # the script, to be written as UTF-8
    files: Mapping[str, bytes]  # by path relative to the script
    project: Path | None  # the folder to ship with it; None: the script needs no file of the user's
    elsewhere: tuple[Path, ...]  # folders outside the project that it imports from: they exist only here
    python: tuple[int, int] | None  # the one Python minor that can run it; None: any that supports the syntax


def script_of(
    function: Callable[..., object],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] = MappingProxyType({}),
    *,
    later: Collection[str] = (),
    variable: str = "",
) -> FunctionScript:
    """Write a function and its arguments as a script; raises CannotShip, naming what cannot be shipped.

    A coroutine function runs with asyncio; the arguments of a `functools.partial` are included. Those named
    in `later` are not known yet: the script finds them in an environment variable, as a JSON object.
    """
    while isinstance(function, functools.partial):
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        function = function.func
    namespace = _namespace_of(function)
    name = _plain_name(function, namespace)
    labels = _argument_names(function, name, args, {**kwargs, **dict.fromkeys(later)})
    call = Call(
        name=name,
        function=function,
        args=tuple(zip(labels, args, strict=True)),
        kwargs=dict(kwargs),
        is_async=inspect.iscoroutinefunction(function),
        from_environment=variable if later else "",
    )
    with definitions_by_value(namespace):
        gathered = gather(call, namespace)
    return _written(name, gathered, prefer_first=import_path(function) is not None)


def script_of_cell(text: str, namespace: dict[str, Any], *, also: Iterable[str] = ()) -> FunctionScript:
    """Write a notebook's cell as a script that executes it, with what it needs from the notebook; raises
    CannotShip, naming what cannot be shipped. What its last expression gives is what it returns.

    `also` are names that the cell binds and may read before that; a relative import, or an `await` outside of
    a function, is refused.
    """
    try:
        compile(text, "cell", "exec", dont_inherit=True)
        found = names_in(text)
    except SyntaxError as error:
        hint = "write it as it would be in a file: workers run it as a script"
        raise CannotShip(f"the cell, line {error.lineno}: {error.msg}", hint=hint) from None
    names = replace(found, now=found.now | frozenset(also))
    try:
        with definitions_by_value(namespace):
            gathered = gather(CellCode(name="cell", start=execute_cell(), names=names), namespace)
    except CannotShip as error:
        raise CannotShip(
            error.message, hint=error.hint.replace("inside the function", "in the cell")
        ) from None
    return _written("cell", gathered, {CELL: text.encode()}, prefer_first=False)


def _written(
    name: str,
    gathered: ScriptParts,
    beside: Mapping[str, bytes] = MappingProxyType({}),
    *,
    prefer_first: bool,
) -> FunctionScript:
    project = _project(gathered.roots, prefer_first=prefer_first)
    elsewhere = [root for root in gathered.roots if project is not None and not root.is_relative_to(project)]
    folders = search_folders(project, gathered.roots) if project is not None else ()
    files = {WRITER: Path(writing.__file__).read_bytes(), **beside}
    files |= {VALUES: gathered.values} if gathered.values else {}
    return FunctionScript(
        name=name,
        text=render(gathered, name=name, project=project, folders=folders, elsewhere=elsewhere),
        files=files | cloudpickle_files(BY_VALUE) if gathered.by_value else files,
        project=project,
        elsewhere=tuple(elsewhere),
        python=sys.version_info[:2] if gathered.by_value else None,
    )


def _plain_name(function: object, namespace: dict[str, Any]) -> str:
    """The function's name for the user; for a lambda or a decorator's result, the variable that holds it."""
    name = getattr(function, "__name__", type(function).__name__)
    if not name.isidentifier() or "<locals>" in getattr(function, "__qualname__", ""):
        name = next((held for held, value in namespace.items() if value is function), name)
    return "".join(letter for letter in name if letter.isalnum() or letter == "_") or "function"


def _argument_names(
    function: Any, name: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> list[str]:
    """Names of the positional arguments for messages; raises CannotShip when the call cannot work at all."""
    problem = hint = ""
    if not callable(function):
        problem, hint = "it is not a function", "pass a function, without calling it"
    elif isinstance(function, BuiltinFunctionType) or getattr(function, "__module__", None) == "builtins":
        problem, hint = "it is not written in Python", "wrap it in a function of your own"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problem = "it is a generator, and calling it would run nothing"
        hint = "let it run its loop and return, without yield"
    if problem:
        raise CannotShip(f"cannot send {name!r}: {problem}", hint=hint)
    numbers = [f"#{position}" for position in range(1, len(args) + 1)]
    try:
        signature = inspect.signature(function)
    except ValueError:
        return numbers  # written in C, without a signature
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CannotShip(f"cannot send {name!r}: {error}", hint=f"its parameters are {signature}") from None
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [parameter.name for parameter in signature.parameters.values() if parameter.kind in by_position]
    return [*known[: len(args)], *numbers[len(known) :]]


def _namespace_of(function: Any) -> dict[str, Any]:
    """The namespace that the function was typed in; the main one for a function that is shipped by name."""
    main = vars(sys.modules["__main__"])
    inner = inspect.unwrap(function.__func__ if isinstance(function, MethodType) else function)
    own_module = sys.modules.get(getattr(inner, "__module__", None) or "")
    namespace = getattr(inner, "__globals__", vars(own_module) if own_module is not None else main)
    module = sys.modules.get(str(namespace.get("__name__")))
    return main if module is not None and vars(module) is namespace and can_import(module) else namespace


def _project(roots: Sequence[Path], *, prefer_first: bool) -> Path | None:
    projects = [project_of(root) for root in roots]
    around_here = [folder for folder in projects if Path.cwd().is_relative_to(folder)]
    return next(iter([] if prefer_first else around_here), projects[0]) if projects else None
