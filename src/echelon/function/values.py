"""How values are shipped: as literals in the script, or in one pickle stream beside it.

One stream, so that what two values share (a model, and the optimizer that holds its parameters) is still
shared when they are read. What the script itself defines is in the stream by name only. What is bound to this
process is refused by name.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import getclosurevars
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle

from echelon.errors import CannotShip
from echelon.function.literals import containers, literal
from echelon.function.modules import can_import

# By the type's full name, so that nothing is imported to recognise it: what it is, and what to do instead.
_BOUND_TO_THIS_PROCESS = {
    "_io._IOBase": ("an open file", "open it inside the function; pass its path if it varies"),
    "_thread.lock": ("a lock", "make it inside the function"),
    "_thread.RLock": ("a lock", "make it inside the function"),
    "multiprocessing.synchronize.SemLock": ("a lock", "make it inside the function"),
    "threading.Thread": ("a thread", "start it inside the function"),
    "subprocess.Popen": ("a running process", "start it inside the function"),
    "_socket.socket": ("a socket", "connect inside the function"),
    "sqlite3.Connection": ("a database connection", "connect inside the function"),
    "builtins.generator": ("a generator", "make it inside the function, or pass a list"),
    "builtins.coroutine": ("a coroutine", "await it before, or make it inside the function"),
    "builtins.async_generator": ("a generator", "make it inside the function"),
    "builtins.frame": ("a stack frame", "leave it out"),
    "builtins.traceback": ("a traceback", "keep its text instead"),
    "IPython.core.interactiveshell.InteractiveShell": ("the notebook's own machinery", "leave it out"),
}


class Values:
    """The values of one script. `name_of` names what the script defines; `met` is called with each module and
    function in them.
    """

    def __init__(
        self,
        who: str,
        apart: Iterable[int],
        name_of: Callable[[object], str | None],
        met: Callable[[ModuleType | FunctionType], None],
    ) -> None:
        self.by_value: dict[str, None] = {}  # labels of what needs cloudpickle, and so the same Python minor
        self._who, self._apart, self._literals = who, frozenset(apart), Counter[int]()
        self._stored_too: set[int] = set()
        self._file = io.BytesIO()
        self._pickler = _Pickler(self._file, name_of, met)

    def literal(self, value: object) -> str | None:
        """Text for plain data, unless something in it is shared with another value."""
        text = literal(value)
        if text is None or not self._apart.isdisjoint(found := containers(value)):
            return None
        self._literals.update(found)
        return text

    def shared(self) -> set[int]:
        """Containers that were written as a literal although something else holds them; after `stream`."""
        return {at for at, times in self._literals.items() if times > 1} | self._stored_too

    def probe(self, label: str, value: object, subject: str, user: str = "") -> frozenset[str]:
        """Which names of the script a value needs; raises CannotShip, naming the subject."""
        try:
            self._write(value, subject)
        except CannotShip:
            if isinstance(value, FunctionType):  # shipped by value: is one of its variables the cause?
                variables = getclosurevars(value)
                for name, used in {**variables.nonlocals, **variables.globals}.items():
                    self._write(used, f"{user or repr(label)} uses {name!r}, which")
            raise
        # A stream that needs cloudpickle names its module. Data with that name in it is taken for one, too:
        # then the script requires more than it needs.
        if b"cloudpickle" in self._file.getvalue():
            self.by_value[label] = None
        return frozenset(self._pickler.named)

    def stream(self, values: Iterable[object]) -> bytes:
        """All the values, each already probed, in the order in which the script reads them."""
        self._begin()
        for value in values:
            self._pickler.dump(value)
        if self._literals:
            self._stored_too = self._literals.keys() & self._pickler.memo.copy().keys()
        return self._file.getvalue()

    def _begin(self) -> None:
        self._pickler.clear_memo()
        self._pickler.named.clear()
        self._file.seek(0)
        self._file.truncate()

    def _write(self, value: object, subject: str) -> None:
        self._begin()
        self._pickler.top = value
        try:
            self._pickler.dump(value)
        except _Bound as bound:
            raise CannotShip(f"cannot send {self._who!r}: {subject} {bound.what}", hint=bound.hint) from None
        except CannotShip:
            raise
        except Exception as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            problem = f"{subject} is a {kind} that cannot be pickled: {str(error).partition(chr(10))[0]}"
            hint = "make it inside the function, or pass plain data"
            raise CannotShip(f"cannot send {self._who!r}: {problem}", hint=hint) from error


def cloudpickle_files(folder: str) -> dict[str, bytes]:
    """cloudpickle itself (pure Python, a few files), so that a worker need not have it."""
    package = Path(cloudpickle.__file__).parent
    return {f"{folder}/cloudpickle/{file.name}": file.read_bytes() for file in sorted(package.glob("*.py"))}


@contextmanager
def definitions_by_value(namespace: dict[str, Any]) -> Iterator[None]:
    """Tell cloudpickle that no other process can import what this namespace defines, though this one can."""
    module = sys.modules.get(str(namespace.get("__name__")))
    if module is None or vars(module) is not namespace or module.__name__ == "__main__":
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


class _Bound(Exception):  # carries a finding up through the pickler
    def __init__(self, what: str, hint: str) -> None:
        self.what, self.hint = what, hint


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(
        self,
        file: io.BytesIO,
        name_of: Callable[[object], str | None],
        met: Callable[[ModuleType | FunctionType], None],
    ) -> None:
        super().__init__(file, protocol=5)
        self.top: object = None
        self.named: set[str] = set()
        self._name_of, self._met = name_of, met

    def reducer_override(self, value: Any) -> Any:
        kind: type = type(value)
        if value is defined_in_script:
            return NotImplemented
        if callable(value) and (path := self._name_of(value)) is not None:
            self.named.add(path.partition(".")[0])
            return defined_in_script, (path,)
        if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
            self._meet(value)
        elif (trouble := _trouble(kind) or _on_device(value)) and not _is_standard_stream(value):
            what, hint = trouble
            raise _Bound(f"is {what}" if value is self.top else f"holds {what}", hint)
        # cloudpickle's own form of these two would tie the stream to this Python version.
        if isinstance(value, ModuleType) and can_import(value):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, MethodType):
            name = _attribute_of(value)
            whole = MethodType, (value.__func__, value.__self__)  # the object does not have it itself
            return whole if name is None else (getattr, (value.__self__, name))
        return super().reducer_override(value)

    def _meet(self, value: type | FunctionType | BuiltinFunctionType | ModuleType) -> None:
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
        if (module := sys.modules.get(name or "")) is not None:
            self._met(module)
        if isinstance(value, FunctionType):
            self._met(value)


def defined_in_script(path: str) -> object:
    """The stream's placeholder for what the script defines; the script puts its own look-up there."""
    raise LookupError(path)


def _attribute_of(method: MethodType) -> str | None:
    """Under which name an object has a method: in a class made with `type(...)` it need not be the
    function's.
    """
    function, owner = method.__func__, method.__self__
    kinds = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
    held = [
        name
        for kind in kinds
        for name, each in vars(kind).items()
        if getattr(each, "__func__", each) is function
    ]
    return next((name for name in [function.__name__, *held] if getattr(owner, name, None) == method), None)


@cache
def _trouble(kind: type) -> tuple[str, str] | None:
    names = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
    if "_io.BytesIO" in names or "_io.StringIO" in names:
        return None
    return next((_BOUND_TO_THIS_PROCESS[name] for name in names if name in _BOUND_TO_THIS_PROCESS), None)


def _on_device(value: object) -> tuple[str, str] | None:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.device.type in ("cpu", "meta"):
        return None
    return f"a tensor on {value.device}", "move it to the CPU first, and to the device inside the function"


def _is_standard_stream(value: object) -> bool:
    return any(value is stream for stream in (sys.stdin, sys.stdout, sys.stderr))
