"""What a function says that it returns: refused before it is sent if no such value could ever come back."""

from __future__ import annotations

import functools
import io
import socket
import sys
import threading
import types
import typing
from collections import Counter, OrderedDict, abc, defaultdict
from typing import Any

from echelon.errors import CannotShip

_CONTAINERS = (list, tuple, set, frozenset, dict, OrderedDict, defaultdict, Counter)
_PLAIN = (type(None), bool, int, float, str, bytes, *_CONTAINERS)  # as codecs/writing.py takes them
_OF_LIBRARIES = (
    ("numpy", ("ndarray", "generic")),
    ("torch", ("Tensor",)),
    ("pandas", ("DataFrame", "Series")),
    ("pyarrow", ("Table",)),
)
_NO_PICKLE = (
    types.ModuleType,
    abc.Generator,
    abc.Coroutine,
    abc.AsyncGenerator,
    io.IOBase,
    typing.IO,
    socket.socket,
    threading.Thread,
)


def check_return(function: object, *, remote: bool) -> None:
    """Raise CannotShip if the function's annotation names a class of which no value can come back: from this
    machine what no pickle holds, from elsewhere what is not plain data. An annotation that is not understood
    says nothing.
    """
    while isinstance(function, functools.partial):
        function = function.func
    try:
        returned = typing.get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001 - an annotation is any expression
        return
    for kind in _classes(returned):
        if issubclass(kind, _NO_PICKLE) or (remote and not _may_be_plain(kind)):
            name = getattr(function, "__name__", "the function")
            raise CannotShip(
                f"{name!r} says that it returns a {kind.__qualname__}, which cannot come back",
                hint=f"{_instead(kind)}; or return nothing, and save it below $ECHELON_OUTPUT",
            )


def _classes(annotation: Any) -> list[type]:
    """The classes of the values: of a union each one, of a container also what is in it."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return [kind for each in inside for kind in _classes(each)]
    if origin is typing.Annotated:
        return _classes(inside[0])
    if isinstance(origin, type):
        within = inside if issubclass(origin, _CONTAINERS) else ()
        return [origin, *(kind for each in within for kind in _classes(each))]
    return [annotation] if isinstance(annotation, type) else []


def _may_be_plain(kind: type) -> bool:
    """Whether a value of the class, or of one below it, may be written as plain data."""
    if kind is Any or typing.is_typeddict(kind):  # the first is a class since Python 3.11
        return True
    plain: list[type] = [*_PLAIN]
    for library, names in _OF_LIBRARIES:
        module = sys.modules.get(library)
        own = [getattr(module, name) for name in names] if module is not None else []
        if issubclass(kind, tuple(own)):
            return True
        plain += own
    try:
        return any(issubclass(each, kind) for each in plain)
    except TypeError:  # a protocol that cannot be asked
        return True


def _instead(kind: type) -> str:
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.nn.Module):
        return "return its state_dict()"
    if hasattr(kind, "__dataclass_fields__"):
        return "return dataclasses.asdict(...) of it"
    if issubclass(kind, _CONTAINERS):
        return "return a plain list, tuple or dict of it"
    return "return numbers, texts, arrays, tensors or tables"
