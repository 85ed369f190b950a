"""`frozen`: a class whose objects hold what they are made with, do not change, and are equal when they hold
the same.

It is what `dataclass(frozen=True, kw_only=True, slots=True)` makes, and the functions of `dataclasses` take
it for that. But that decorator writes and compiles six methods of every class; of the hundred that a command
imports it was a quarter of the time until the command did anything. Here all classes have the same methods
but for `__init__`, which is made with the first object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, get_type_hints

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[_Class]) -> type[_Class]:
    """Decorate a class with annotated fields, as of a dataclass; all are given by name."""
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # or `dataclass` would write one, for which it parses signatures
    made: Any = dataclass(init=False, repr=False, eq=False, kw_only=True, slots=True)(cls)
    held = attrgetter(*names) if (names := [each.name for each in fields(made) if each.compare]) else _nothing
    methods: dict[str, Callable[..., Any]] = {
        "__init__": _init_when_called(made),
        "__repr__": _repr,
        "__eq__": _equality(held),
        "__hash__": lambda self: hash(held(self)),
        "__setattr__": _refuse_set,
        "__delattr__": _refuse_delete,
        "__reduce__": _reduce,
    }
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def types_of(cls: type[Any]) -> dict[str, Any]:
    """The types of a class's fields, by name. They are evaluated once, since that takes milliseconds."""
    return _evaluated(cls)  # type: ignore[arg-type] # mypy takes no class for hashable


_evaluated = cache(get_type_hints)


def _init_when_called(cls: Any) -> Callable[..., None]:
    def __init__(self: Any, /, **given: Any) -> None:  # noqa: N807
        cls.__init__ = _make_init(cls)
        cls.__init__(self, **given)

    return __init__


def _make_init(cls: Any) -> Callable[..., None]:
    """Compile `__init__`: called with names, a loop over the fields would take three times as long."""
    takes, sets = [], []
    known: dict[str, object] = {"_set": object.__setattr__, "_absent": MISSING}
    for each in fields(cls):
        name = each.name
        if each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            takes.append(f"{name}=_absent")
            sets.append(f"_set(self, {name!r}, _make_{name}() if {name} is _absent else {name})")
        else:
            known[f"_default_{name}"] = each.default
            takes.append(name if each.default is MISSING else f"{name}=_default_{name}")
            sets.append(f"_set(self, {name!r}, {name})")
    lines = [f"def __init__({', '.join(['self', *(['*', *takes] if takes else [])])}):", *(sets or ["pass"])]
    exec("\n ".join(lines), known)  # noqa: S102
    made: Any = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made  # type: ignore[no-any-return]


def _equality(held: Callable[[Any], object]) -> Callable[[Any, object], Any]:
    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        return held(self) == held(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _nothing(_value: object) -> object:
    return ()


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_set(_self: object, name: str, _given: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _reduce(self: Any) -> tuple[object, ...]:
    return _restore, (self.__class__, {each.name: getattr(self, each.name) for each in fields(self)})


def _restore(cls: type[_Class], held: dict[str, object]) -> _Class:
    return cls(**held)
