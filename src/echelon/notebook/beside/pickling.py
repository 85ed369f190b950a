"""Pickles between steps of one pipeline run. The notebook's functions find their names in the step that reads
them, not in a copy of the step that wrote them; what the prelude defines is in the stream by name, since
every step defines it again.

What is rebuilt differently than by cloudpickle is rebuilt by functions of this file, which are in the stream
by name too (`_OWN`): the reading process need not be able to import this file."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import logging
import pickle
import sys
import types
from types import CellType, FunctionType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import cloudpickle
from cloudpickle.cloudpickle import (
    _DYNAMIC_CLASS_TRACKER_BY_ID,
    _class_setstate,
    _lookup_class_or_track,
    _make_empty_cell,
    _make_skeleton_class,
)

from echelon.notebook.beside import alike

_CACHED: Any = type(functools.lru_cache(len))
_PROTOCOL = min(5, pickle.HIGHEST_PROTOCOL)
MAIN = "__main__"
_DEFINED = (type, FunctionType, _CACHED)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Writes values of a step; `prelude` is what every step makes itself, by name; `blocks` is the memory
    that several arrays of the value share. `lost` has what cannot be written, and was left out."""

    def __init__(
        self,
        file: Any,
        namespace: Dict[str, Any],
        prelude: Mapping[str, Any],
        blocks: Optional[alike.Blocks] = None,
    ) -> None:
        super().__init__(file, protocol=_PROTOCOL)
        self._namespace, self._prelude = namespace, prelude
        self._names = {id(value): name for name, value in prelude.items() if isinstance(value, _DEFINED)}
        self._blocks = blocks or alike.Blocks()
        self.lost: Dict[str, None] = {}

    def persistent_id(self, value: Any) -> Any:
        """The notebook's own namespace, what the prelude defines in it, and functions of this file."""
        if value is self._namespace:
            return ("namespace", "")
        if value is sys.stdout or value is sys.stderr:
            return ("stream", "stdout" if value is sys.stdout else "stderr")
        if isinstance(value, _DEFINED):
            own = getattr(value, "__name__", "")
            if _OWN.get(own) is value:
                return ("own", own)
            name = self._name_in_prelude(value)
            return None if name is None else ("name", name)
        return None

    def _name_in_prelude(self, value: Any) -> Optional[str]:
        """The name, perhaps with dots, under which every step makes a definition."""
        if getattr(value, "__module__", None) != MAIN:
            return None
        if id(value) in self._names:
            return self._names[id(value)]
        root, _, rest = value.__qualname__.partition(".")
        found: Any = self._prelude.get(root)
        for part in rest.split("."):
            found = vars(found).get(part) if isinstance(found, type) else None
        return str(value.__qualname__) if found is value else None

    def reducer_override(self, value: Any) -> Any:
        """As cloudpickle does it, but for what it leaves out: the globals of the notebook's functions, slots
        of its classes, gradients, shared memory, causes of errors; and for what knows itself by name only.
        """
        if type(value) is _CACHED and value.__module__ == MAIN:
            about = value.cache_parameters() if hasattr(value, "cache_parameters") else {}
            info, typed = value.cache_info(), about.get("typed", False)
            return (_CACHED, (value.__wrapped__, info.maxsize, typed, type(info)), vars(value))
        if type(value) is functools.cached_property:  # it has a lock until Python 3.12
            return (functools.cached_property, (value.func,), {"attrname": value.attrname})
        if type(value) is CellType:
            return _reduced_cell(value)
        if isinstance(value, type):
            return _reduced_class(value, super().reducer_override(value))
        if is_dispatching(value):
            return (
                _make_dispatching,
                (value.__wrapped__,),
                _state_of_dispatching(value),
                None,
                None,
                _set_dispatching,
            )
        if isinstance(value, logging.Handler):
            return _reduced_handler(value)
        if isinstance(value, BaseException):
            return self._reduced_error(value)
        reduced = alike.reduced(value, self._blocks, self.lost)
        if reduced is not None:
            return reduced
        reduced = super().reducer_override(value)
        if not isinstance(value, FunctionType) or value.__globals__ is not self._namespace:
            return reduced
        make, arguments, (attributes, slots) = reduced[:3]
        # cloudpickle copies what a closure holds to variables of its own: two functions of one count would
        # count apart. The variables themselves are one object for both.
        arguments = (arguments[0], self._namespace, *arguments[2:4], value.__closure__)
        slots = dict(slots, __globals__={}, __closure__=None)
        return (make, arguments, (attributes, slots), *reduced[3:])

    def _reduced_error(self, error: BaseException) -> Any:
        """An error with the errors that led to it, which pickle leaves out, and without its traceback."""
        if error.__traceback__ is not None:
            self.lost["the traceback of an error (format it in the step that catches it)"] = None
        led = (error.__cause__, error.__context__, error.__suppress_context__)
        if led == (None, None, False):
            return NotImplemented
        reduced = error.__reduce_ex__(_PROTOCOL)
        state = reduced[2] if len(reduced) > 2 else None
        return (*reduced[:2], (state, led), None, None, _set_error)


def _reduced_cell(cell: CellType) -> Tuple[Any, ...]:
    """A closure's variable: made empty and filled then, since what it holds may use it."""
    try:
        return (_make_empty_cell, (), (None, {"cell_contents": cell.cell_contents}))
    except ValueError:  # it is not assigned yet
        return (_make_empty_cell, ())


# Classes. What a class announces when it is made (`__init_subclass__`, a metaclass) has happened in the step
# that made it, and what came of it is handed on by itself: it must not happen again.


def _reduced_class(kind: Any, reduced: Any) -> Any:
    if not isinstance(reduced, tuple) or reduced[0] is not _make_skeleton_class:
        return reduced
    metaclass, name, bases, attributes, tracker = reduced[1][:5]
    if "__slots__" in vars(kind):
        attributes = dict(attributes, __slots__=vars(kind)["__slots__"])
    arguments = (metaclass, name, bases, attributes, tracker)
    return (_make_class, arguments, reduced[2], None, None, _set_class)


def _make_class(metaclass: Any, name: str, bases: Any, attributes: Dict[str, Any], tracker: str) -> Any:
    known = _DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
    if known is not None:
        return known
    attributes = {sys.intern(key): value for key, value in attributes.items()}
    with _without_announcing(types.resolve_bases(bases)):
        if metaclass.__module__ != MAIN:
            made = types.new_class(
                name, bases, {"metaclass": metaclass}, lambda names: names.update(attributes)
            )
        else:
            foreign = next(each for each in metaclass.__mro__ if each.__module__ != MAIN)
            resolved = types.resolve_bases(bases)
            names = dict(foreign.__prepare__(name, resolved), **attributes)
            made = foreign.__new__(metaclass, name, resolved, names)
            foreign.__init__(made, name, resolved, names)
    return _lookup_class_or_track(tracker, made)


@contextlib.contextmanager
def _without_announcing(bases: Any) -> Iterator[None]:
    hook = "__init_subclass__"
    own = {each for base in bases for each in base.__mro__ if each.__module__ == MAIN and hook in vars(each)}
    kept = {each: vars(each)[hook] for each in own}
    for each in kept:
        type.__delattr__(each, hook)
    try:
        yield
    finally:
        for each, function in kept.items():
            type.__setattr__(each, hook, function)


def _set_class(kind: Any, state: Any) -> None:
    """Give a class its attributes; one that was read before loses those that it has no more."""
    for name in [each for each in vars(kind) if each not in state[0] and not each.startswith("__")]:
        if not isinstance(vars(kind)[name], types.MemberDescriptorType) and name != "_abc_impl":
            type.__delattr__(kind, name)
    _class_setstate(kind, state)


# Functions that dispatch, handlers of logging, errors


def is_dispatching(value: object) -> bool:
    """Whether a function was made by functools.singledispatch."""
    return (
        isinstance(value, FunctionType)
        and value.__globals__ is vars(functools)
        and hasattr(value, "registry")
    )


def _make_dispatching(function: Callable[..., Any]) -> Any:
    return functools.singledispatch(function)


def _state_of_dispatching(function: Any) -> Tuple[Dict[Any, Any], Dict[str, Any]]:
    own = ("registry", "dispatch", "register", "_clear_cache", "__wrapped__")
    return dict(function.registry), {key: each for key, each in vars(function).items() if key not in own}


def _set_dispatching(function: Any, state: Any) -> None:
    registry, attributes = state
    for kind, each in registry.items():
        if function.registry.get(kind) is not each:
            function.register(kind, each)
    vars(function).update(attributes)


def _reduced_handler(handler: logging.Handler) -> Any:
    """A handler without its lock; one that writes to a file opens it again, to append."""
    state = {key: value for key, value in vars(handler).items() if key != "lock"}
    if isinstance(handler, logging.FileHandler):
        state.update(stream=None, mode="a")
    return (_make_handler, (type(handler),), state)


def _make_handler(kind: Any) -> Any:
    handler = kind.__new__(kind)
    handler.createLock()
    getattr(logging, "_addHandlerRef", lambda _: None)(handler)
    return handler


def _set_error(error: BaseException, state: Any) -> None:
    own, led = state
    if own:
        error.__setstate__(own)
    error.__cause__, error.__context__, error.__suppress_context__ = led


_OWN: Dict[str, Any] = {
    each.__name__: each
    for each in (_make_class, _set_class, _make_dispatching, _set_dispatching, _make_handler, _set_error)
}
_OWN.update(alike.OWN)


def _leave(_value: object, _state: object) -> None:
    """What exists already is not changed by what is read back to verify it."""


class Unpickler(pickle.Unpickler):
    """Reads values into a step; with `verifying`, in the step that wrote them."""

    def __init__(
        self, file: Any, namespace: Dict[str, Any], prelude: Mapping[str, Any], verifying: bool = False
    ) -> None:
        super().__init__(file)
        self._namespace, self._prelude, self._verifying = namespace, prelude, verifying

    def persistent_load(self, pid: Any) -> Any:
        """The counterpart of `Pickler.persistent_id`."""
        kind, name = pid
        if kind == "namespace":
            return self._namespace
        if kind == "stream":
            return getattr(sys, name)
        if kind == "own":
            return _leave if self._verifying and name == _set_class.__name__ else _OWN[name]
        root, *rest = name.split(".")
        found = self._prelude[root]
        for part in rest:
            found = vars(found)[part]
        return found

    def find_class(self, module: str, name: str) -> Any:
        """What is in the stream by name must be there in the next step too, so nothing of the notebook's."""
        if module == MAIN:
            raise pickle.UnpicklingError("%s of the notebook cannot be written, only named" % name)
        return super().find_class(module, name)


class _Digest(io.RawIOBase):
    """A file that keeps only the digest of what is written to it."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Take a piece."""
        self.digest.update(data)
        return len(data)


def fingerprint(value: object, namespace: Dict[str, Any], prelude: Mapping[str, Any]) -> str:
    """A text that changes when the value does; raises what pickling raises."""
    file = _Digest()
    Pickler(file, namespace, prelude).dump(value)
    return file.digest.hexdigest()


__all__: List[str] = ["MAIN", "Pickler", "Unpickler", "fingerprint", "is_dispatching"]
