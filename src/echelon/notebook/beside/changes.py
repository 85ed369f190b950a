"""Which variables a step has changed: those are handed on, all others stay as the step before left them.

What the prelude makes is made again in every step. So what cannot be written stays behind there, such as a
lock or a compiled function; what a step has changed of the prelude's functions and classes is handed on by
itself (`state.py`)."""

from __future__ import annotations

import enum
from types import FunctionType, GeneratorType, ModuleType
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Set, Tuple

from echelon.notebook.beside import alike, keras
from echelon.notebook.beside.pickling import MAIN, fingerprint

_DEFINITIONS = (type, FunctionType, ModuleType)
_SAME = "a definition"


class Changes:
    """The variables of a step as they came in. `prelude` is filled with what every step makes, by name."""

    def __init__(self, namespace: Dict[str, Any], prelude: Dict[str, Any]) -> None:
        self._namespace, self._prelude = namespace, prelude
        self._first: Dict[str, Tuple[Any, Optional[str]]] = {}

    def prelude_is_over(self) -> None:
        """Everything that is there now is there in every step."""
        self._prelude.update(
            {name: value for name, value in self._namespace.items() if not name.startswith("__")}
        )

    def note(self, name: str) -> None:
        """A variable is as it was before the step's cells."""
        value = self._namespace[name]
        self._first[name] = (value, self._fingerprint(value))

    def handed_on(
        self,
        names: Collection[str],
        tell: Callable[[str], object],
        changed: Mapping[str, Any],
        same: Mapping[str, Any],
    ) -> Dict[str, Any]:
        """Of these variables, those that have changed, and those that share something with them. `changed`
        and `same` are what is handed on beside variables, and what could be."""
        there = [name for name in names if name in self._namespace]
        handed = {name: self._namespace[name] for name in there if not self._stays(name, tell)}
        unchanged = {name: self._namespace[name] for name in there if name not in handed}
        kept = {name: value for name, value in unchanged.items() if self._goes(name, value)}
        handed.update(changed)
        handed.update(_sharing(handed, {**kept, **same}))
        return handed

    def deleted(self, names: Collection[str]) -> List[str]:
        """Of these variables, those that the step has deleted."""
        return [name for name in names if name in self._first and name not in self._namespace]

    def _goes(self, name: str, value: Any) -> bool:
        """Whether steps hand a value on at all: of definitions, those that a step has made."""
        if not isinstance(value, _DEFINITIONS):
            return True
        return getattr(value, "__module__", None) == MAIN and self._prelude.get(name) is not value

    def _stays(self, name: str, tell: Callable[[str], object]) -> bool:
        if name not in self._first:
            return False
        value, before = self._first[name]
        if self._namespace[name] is not value:
            return False
        now = self._fingerprint(value)
        made_anew = self._prelude.get(name) is value
        if made_anew and isinstance(value, (type, FunctionType)):
            return True
        if made_anew and now is None and not isinstance(value, GeneratorType):
            if before is not None and not callable(value):
                tell(name)
            return True
        return before is not None and before == now

    def _fingerprint(self, value: Any) -> Optional[str]:
        """A text that changes when the value does; None if there is none."""
        definition = isinstance(value, _DEFINITIONS)
        if isinstance(value, type) and issubclass(
            value, enum.Enum
        ):  # it keeps a list of what it was asked for
            return _SAME
        try:
            if keras.library_of_model(value) is not None:
                value = (value.get_weights(), value.get_config())
            return fingerprint(value, self._namespace, self._prelude)
        except Exception:
            return _SAME if definition else None


def _sharing(handed: Dict[str, Any], others: Dict[str, Any]) -> Dict[str, Any]:
    """Of other variables, those that share something with what is handed on, directly or through each other:
    they stay together with it."""
    if not handed or not others:
        return {}
    parts: Set[Any] = set()
    for value in handed.values():
        parts.update(alike.reach(value))
    data = {name: alike.reach(value) for name, value in others.items()}
    found: Dict[str, Any] = {}
    while True:
        new = [name for name, own in data.items() if name not in found and not parts.isdisjoint(own)]
        if not new:
            return found
        for name in new:
            found[name] = others[name]
            parts.update(data[name])
