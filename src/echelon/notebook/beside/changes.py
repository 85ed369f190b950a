"""Which variables a step has changed: those are handed on, all others stay as the step before left them.

What the prelude makes is made again in every step. So what cannot be written stays behind there, such as a
lock or a compiled function, and so does what a step has changed of the prelude's functions and classes; the
latter is told."""

from __future__ import annotations

from types import FunctionType, GeneratorType, ModuleType
from typing import Any, Callable, Collection, Dict, List, Optional, Set, Tuple

from echelon.notebook.beside import alike, keras
from echelon.notebook.beside.pickling import fingerprint

_DEFINITIONS = (type, FunctionType, ModuleType)
_SAME = "a definition"


class Changes:
    """The variables of a step as they came in. `prelude` is filled with the names that every step makes."""

    def __init__(self, namespace: Dict[str, Any], prelude: Set[str]) -> None:
        self._namespace, self._prelude = namespace, prelude
        self._made: Dict[str, Any] = {}  # by the prelude
        self._first: Dict[str, Tuple[Any, Optional[str]]] = {}

    def prelude_is_over(self) -> None:
        """Everything that is there now is there in every step."""
        self._made = {name: value for name, value in self._namespace.items() if not name.startswith("__")}
        self._prelude.update(self._made)

    def note(self, name: str) -> None:
        """A variable is as it was before the step's cells."""
        value = self._namespace[name]
        self._first[name] = (value, self._fingerprint(value))

    def handed_on(self, names: Collection[str], tell: Callable[[str], object]) -> Dict[str, Any]:
        """Of these variables, those that have changed, and those that share something with them."""
        there = [name for name in names if name in self._namespace]
        changed = {name: self._namespace[name] for name in there if not self._stays(name, tell)}
        same = {name: self._namespace[name] for name in there if name not in changed}
        kept = {name: value for name, value in same.items() if self._goes(name, value)}
        changed.update(_sharing(changed, kept))
        return changed

    def _goes(self, name: str, value: Any) -> bool:
        """Whether steps hand a value on at all: of definitions, those that a step has made."""
        if not isinstance(value, _DEFINITIONS):
            return True
        return getattr(value, "__module__", None) == "__main__" and self._made.get(name) is not value

    def _stays(self, name: str, tell: Callable[[str], object]) -> bool:
        if name not in self._first:
            return False
        value, before = self._first[name]
        if self._namespace[name] is not value:
            return False
        now = self._fingerprint(value)
        if self._made.get(name) is value and (
            isinstance(value, _DEFINITIONS) or (now is None and not isinstance(value, GeneratorType))
        ):
            if now != before and (now is not None or not callable(value)):
                tell(
                    "echelon: this step has changed %s, which every step makes anew: steps after it do not "
                    "see the change (make it in a step, not in imports or functions, to hand it on)" % name
                )
            return True
        return before is not None and before == now

    def _fingerprint(self, value: Any) -> Optional[str]:
        """A text that changes when the value does; None if there is none."""
        definition = isinstance(value, _DEFINITIONS)
        try:
            if definition:
                value = _state_of(value)
            elif keras.library_of_model(value) is not None:
                value = (value.get_weights(), value.get_config())
            return _SAME if definition and not value else fingerprint(value, self._namespace, self._prelude)
        except Exception:
            return _SAME if definition else None


def _state_of(definition: Any) -> List[Any]:
    """What a program can change of the notebook's own functions and classes: what a closure holds, defaults,
    attributes."""
    if getattr(definition, "__module__", None) != "__main__":
        return []
    if isinstance(definition, FunctionType):
        parts = [definition.__defaults__, definition.__kwdefaults__, vars(definition)]
        return [*filter(None, parts), *(cell.cell_contents for cell in definition.__closure__ or ())]
    return list(alike.attributes_of(definition).items())


def _sharing(handed: Dict[str, Any], others: Dict[str, Any]) -> Dict[str, Any]:
    """Of other variables, those that share something with what is handed on, directly or through each other:
    they go on together with it."""
    if not handed or not others:
        return {}
    parts: Set[int] = set()
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
