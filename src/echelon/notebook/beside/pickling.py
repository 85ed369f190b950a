"""Pickles between steps of one pipeline run. The notebook's functions find their names in the step that reads
them, not in a copy of the step that wrote them; what the prelude defines is in the stream by name, since
every step defines it again."""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
from types import CellType, FunctionType
from typing import Any, Collection, Dict, Tuple

import cloudpickle
from cloudpickle.cloudpickle import _make_empty_cell

_CACHED: Any = type(functools.lru_cache(len))
_PROTOCOL = min(5, pickle.HIGHEST_PROTOCOL)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Writes values of a step; `prelude` are the names that every step defines itself."""

    def __init__(self, file: Any, namespace: Dict[str, Any], prelude: Collection[str]) -> None:
        super().__init__(file, protocol=_PROTOCOL)
        self._namespace, self._prelude = namespace, prelude

    def persistent_id(self, value: Any) -> Any:
        """The notebook's own namespace, and what the prelude defines in it."""
        if value is self._namespace:
            return ("namespace", "")
        if isinstance(value, (type, FunctionType, _CACHED)) and self._is_of_prelude(value):
            return ("name", value.__qualname__)
        return None

    def _is_of_prelude(self, value: Any) -> bool:
        name = value.__qualname__
        return name in self._prelude and self._namespace.get(name) is value

    def reducer_override(self, value: Any) -> Any:
        """As cloudpickle does it, but for the globals of the notebook's functions; and for functions with a
        cache, which know themselves by name only.
        """
        if type(value) is _CACHED and value.__module__ == "__main__" and not self._is_of_prelude(value):
            about = value.cache_parameters() if hasattr(value, "cache_parameters") else {}
            info, typed = value.cache_info(), about.get("typed", False)
            return (_CACHED, (value.__wrapped__, info.maxsize, typed, type(info)), vars(value))
        if type(value) is functools.cached_property:  # it has a lock until Python 3.12
            return (functools.cached_property, (value.func,), {"attrname": value.attrname})
        if type(value) is CellType:
            return _reduced_cell(value)
        reduced = super().reducer_override(value)
        if not isinstance(value, FunctionType) or value.__globals__ is not self._namespace:
            return reduced
        make, arguments, (attributes, slots) = reduced[:3]
        # cloudpickle copies what a closure holds to variables of its own: two functions of one count would
        # count apart. The variables themselves are one object for both.
        arguments = (arguments[0], self._namespace, *arguments[2:4], value.__closure__)
        slots = dict(slots, __globals__={}, __closure__=None)
        return (make, arguments, (attributes, slots), *reduced[3:])


def _reduced_cell(cell: CellType) -> Tuple[Any, ...]:
    """A closure's variable: made empty and filled then, since what it holds may use it."""
    try:
        return (_make_empty_cell, (), (None, {"cell_contents": cell.cell_contents}))
    except ValueError:  # it is not assigned yet
        return (_make_empty_cell, ())


class Unpickler(pickle.Unpickler):
    """Reads values into a step."""

    def __init__(self, file: Any, namespace: Dict[str, Any]) -> None:
        super().__init__(file)
        self._namespace = namespace

    def persistent_load(self, pid: Any) -> Any:
        """The counterpart of `Pickler.persistent_id`."""
        kind, name = pid
        return self._namespace if kind == "namespace" else self._namespace[name]

    def find_class(self, module: str, name: str) -> Any:
        """What is in the stream by name must be there in the next step too, so nothing of the notebook's."""
        if module == "__main__":
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


def fingerprint(value: object, namespace: Dict[str, Any], prelude: Collection[str]) -> str:
    """A text that changes when the value does; raises what pickling raises."""
    file = _Digest()
    Pickler(file, namespace, prelude).dump(value)
    return file.digest.hexdigest()
