"""What a process has beside variables, handed on as variables are: random numbers, the environment, the
current folder, the search path, options of libraries, logging, warnings, attributes of modules, and what a
step has changed of the functions and classes that every step makes.

Each is a value under a name that begins with `@`, which no code can have. A step hands on what has changed
since it began. What belongs to a library is put back when the library is imported: it may never be."""

from __future__ import annotations

import ast
import contextlib
import enum
import importlib
import importlib.util
import os
import re
import sys
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from echelon.notebook.beside import options
from echelon.notebook.beside.pickling import MAIN, fingerprint, is_dispatching
from echelon.notebook.beside.store import Damaged

SIGN = "@"
_ENVIRON, _FOLDER, _PATH, _IMPORT = "@environ.", "@folder", "@sys.path", "@import."
_SEEDS = re.compile(r"seed|set_?state|rng_state", re.IGNORECASE)
# What a launch gives to each worker belongs to that worker.
_OF_THE_LAUNCH = re.compile(
    r"(ECHELON|PET|OMPI|PMI|SLURM)_.*|(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TF_CONFIG|"
    r"(CUDA|NVIDIA)_VISIBLE_DEVICES|_|PWD|OLDPWD|SHLVL"
)
# They have names of their own above, or belong to the process alone.
_ELSEWHERE = frozenset((
    "os:environ", "sys:path", "sys:modules", "sys:argv", "sys:stdout", "sys:stderr", "sys:stdin",
    "sys:meta_path", "matplotlib:rcParams", "matplotlib.pyplot:rcParams", "pandas:options",
    "warnings:filters", "logging:root",
))  # fmt: skip
_NOTHING = object()
_UNCHANGING = (FunctionType, property, classmethod, staticmethod, type, ModuleType)
_OF_EVERY_CLASS = frozenset((
    "__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__abstractmethods__", "_abc_impl",
    "__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotations_cache__",
))  # fmt: skip


class Store(NamedTuple):
    """A place in the text where something may be set or changed that is not a variable: `json.x = 1`."""

    cell: int
    root: str
    path: Tuple[str, ...]


class State:
    """The state of a step's process. `codes` are the cells that may run in it."""

    def __init__(
        self, namespace: Dict[str, Any], prelude: Mapping[str, Any], codes: Sequence[Mapping[str, Any]]
    ) -> None:
        self._namespace, self._prelude = namespace, prelude
        self._texts = [(code["cell"], code["text"]) for code in codes]
        self._work = os.getcwd()
        self._path: List[str] = []
        self._seeded = any(_SEEDS.search(text) for _, text in self._texts)
        self._came: Set[str] = set()
        self.failed: Dict[str, str] = {}  # what could not be put back, and why
        self._waiting: Dict[str, List[Callable[[], None]]] = {}
        self._noted: Dict[str, Tuple[Any, Optional[str]]] = {}
        self._others: Set[str] = set()  # attributes that are there, and are what other processes have, too
        trees = [(cell, ast.parse(text)) for cell, text in self._texts]
        self._stores = list(dict.fromkeys(each for cell, tree in trees for each in _stores(cell, tree)))
        self._imports = {alias: module for _, tree in trees for alias, module in _imports(tree)}
        self._inside = {name for _, tree in trees for name in _submodules(tree)}

    # Putting back

    def prelude_is_over(self) -> None:
        """From now on, what changes is the step's doing."""
        self._path = list(sys.path)
        sys.meta_path.insert(0, _OnImport(self._waiting))

    def restore(self, loaders: Mapping[str, Optional[Callable[[], Any]]]) -> None:
        """Put back what earlier steps have handed on; None is what they have deleted."""
        first = [name for name in loaders if name.startswith((_ENVIRON, _FOLDER, _PATH))]
        for name in [*first, *(each for each in loaders if each not in first)]:
            self._came.add(name)
            self._when_imported(_module_of(name), lambda name=name: self._put(name, loaders[name]))  # type: ignore[misc]

    def note(self) -> None:
        """The state is as it was before the step's cells."""
        self._noted = {name: self._kept(value) for name, value in self._read().items()}
        for module in {*options.PROBED, *self._imports.values()} - set(sys.modules) - {""}:
            self._when_imported(module, lambda module=module: self._note_module(module))  # type: ignore[misc]

    def _note_module(self, module: str) -> None:
        """A module was imported: so it was before the step changed it."""
        found = dict(self._options([module]))
        found.update(self._attributes_of_modules())
        for name, value in found.items():
            if name not in self._noted and _module_of(name) == module:
                self._noted[name] = self._kept(value)

    def _when_imported(self, module: str, act: Callable[[], None]) -> None:
        if not module or module == MAIN or _is_imported(module):
            act()
        else:
            self._waiting.setdefault(module, []).append(act)

    def _put(self, name: str, load: Optional[Callable[[], Any]]) -> None:
        try:
            self._put_back(name, load)
        except Damaged:
            raise
        except Exception as error:
            self.failed[name] = "%s: %s" % (type(error).__name__, error)

    def _put_back(self, name: str, load: Optional[Callable[[], Any]]) -> None:
        value: Any = None if load is None else load()
        rest = name.partition(".")[2]
        if name.startswith(_ENVIRON):
            if load is None:
                os.environ.pop(rest, None)
            else:
                os.environ[rest] = value
        elif name == _FOLDER:
            os.chdir(os.path.join(self._work, value))
        elif name == _PATH:
            sys.path[:] = [each if isinstance(each, str) else self._path[each] for each in value]
        elif name.startswith(_IMPORT):
            importlib.import_module(rest)
        elif ":" in name:
            self._put_attribute(name[1:], load is None, value)
        elif name[1:] in options.PROBES:
            options.PROBES[name[1:]].write(value)
        else:
            options.set_logger(rest, value)

    def _put_attribute(self, place: str, is_deleted: bool, value: Any) -> None:
        module, _, dotted = place.partition(":")
        *path, attribute = dotted.split(".")
        holder: Any
        if module == MAIN:
            root, *path = path
            holder = self._prelude[root]
        else:
            holder = importlib.import_module(module)
        for part in path:
            holder = _part(holder, part)
        if is_deleted:
            delattr(holder, attribute)
        else:
            _set_part(holder, attribute, value)

    # Handing on

    def changed(self) -> Tuple[Dict[str, Any], List[str], Dict[str, Any]]:
        """What has changed since `note`, what was deleted, and what is as it was."""
        self._others.clear()
        now = self._read()
        changed: Dict[str, Any] = {}
        for name, value in now.items():
            if name[1:] in options.SEEDED and not (self._seeded or name in self._came):
                continue  # numbers without a seed are others in every run
            if name not in self._noted or not self._is_same(name, value):
                changed[name] = value
        deleted = [name for name in self._noted if name not in now and name not in self._others]
        roots = tuple(name + "." for name in (*changed, *deleted) if ":" in name)
        changed = {name: value for name, value in changed.items() if not name.startswith(roots)}
        deleted = [name for name in deleted if not name.startswith(roots)]
        same = {
            name: value for name, value in now.items() if name not in changed and _module_of(name) == MAIN
        }
        return changed, deleted, same

    def cannot_go(self, value: Any) -> bool:
        """Whether a value cannot be written."""
        return self._kept(value)[1] is None

    def cell_of(self, name: str) -> int:
        """The last cell that may have set what a name means; 0 if none can be seen."""
        words = [word for word in re.split(r"\W+", name) if word][-1:]
        cells = [cell for cell, text in self._texts if words and re.search(r"\b%s\b" % words[0], text)]
        return cells[-1] if cells else 0

    def _is_same(self, name: str, value: Any) -> bool:
        before, mark = self._noted[name]
        if isinstance(value, _UNCHANGING):
            return value is before
        now = self._kept(value)[1]
        return bool(value is before or value == before) if now is None else now == mark

    def _kept(self, value: Any) -> Tuple[Any, Optional[str]]:
        if isinstance(value, _UNCHANGING):
            return (value, "")
        try:
            return (value, fingerprint(value, self._namespace, self._prelude))
        except Exception:
            return (value, None)

    # Reading

    def _read(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {
            _ENVIRON + name: value for name, value in os.environ.items() if not _OF_THE_LAUNCH.fullmatch(name)
        }
        try:
            folder = os.getcwd()
            inside = os.path.commonpath([self._work, folder]) == self._work
            found[_FOLDER] = os.path.relpath(folder, self._work) if inside else folder
        except OSError:  # it was removed
            pass
        places = {path: at for at, path in reversed(list(enumerate(self._path)))}
        found[_PATH] = [places.get(path, path) for path in sys.path]
        found.update(self._options(options.PROBED))
        for name, value in options.loggers().items():
            found["@logging." + name] = value
        found.update({_IMPORT + name: True for name in self._inside if name in sys.modules})
        found.update(self._attributes_of_modules())
        for path, definition in _definitions(self._prelude):
            for name, value in _parts(definition).items():
                found["@%s:%s.%s" % (MAIN, path, name)] = value
        return found

    def _options(self, modules: Collection[str]) -> Iterator[Tuple[str, Any]]:
        for name, probe in options.PROBES.items():
            if probe.module in modules and _is_imported(probe.module):
                with contextlib.suppress(Exception):  # another version of the library
                    yield SIGN + name, probe.read()

    def _attributes_of_modules(self) -> Iterator[Tuple[str, Any]]:
        """What may have been set of modules and of classes of libraries."""
        for store in self._stores:
            holder: Any = self._namespace.get(store.root)
            if not _is_foreign(holder):
                holder = sys.modules.get(self._imports.get(store.root, ""))
            if not _is_foreign(holder):
                continue
            *path, attribute = store.path
            while path and _is_foreign(_look(holder, path[0])):
                holder = _look(holder, path.pop(0))
            attribute = path[0] if path else attribute
            place = _place_of(holder, attribute)
            value = _look(holder, attribute)
            if place in _ELSEWHERE or value is _NOTHING:
                continue
            if isinstance(value, ModuleType) or _is_foreign(
                value
            ):  # the first may be one that loads itself later
                self._others.add(SIGN + place)
            else:
                yield SIGN + place, value


class _OnImport:
    """Does what waits for a module when that was imported."""

    def __init__(self, waiting: Dict[str, List[Callable[[], None]]]) -> None:
        self._waiting = waiting

    def find_spec(self, name: str, path: Any = None, _target: Any = None) -> Any:
        """The module's own way to be found, and what waits for it after it."""
        if name not in self._waiting:
            return None
        acts = self._waiting.pop(name)
        others = [each for each in sys.meta_path if each is not self]
        found = (each.find_spec(name, path) for each in others if hasattr(each, "find_spec"))
        spec = next((each for each in found if each is not None), None)
        loader: Any = getattr(spec, "loader", None)
        if not hasattr(loader, "__dict__") or isinstance(loader, type) or not hasattr(loader, "exec_module"):
            return spec
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            loader.__dict__.pop("exec_module", None)
            vars(module.__spec__)["_initializing"] = False  # it is whole now
            for act in acts:
                act()

        loader.exec_module = exec_module
        return spec


def _is_imported(module: str) -> bool:
    """Whether a module is there as a whole: one that is about to be imported is not."""
    found = sys.modules.get(module)
    return found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False)


# Attributes


def _is_foreign(value: Any) -> bool:
    """Whether a value is a module, or a class that is not the notebook's: other processes have it too."""
    if isinstance(value, ModuleType):
        return sys.modules.get(value.__name__) is value and value.__name__ != MAIN
    return isinstance(value, type) and value.__module__ not in (MAIN, "builtins")


def _look(holder: Any, name: str) -> Any:
    """An attribute that is there. A module is not asked for others: it might import them."""
    if isinstance(holder, ModuleType) and name not in vars(holder) and not hasattr(type(holder), name):
        return _NOTHING
    try:
        return getattr(holder, name, _NOTHING)
    except Exception:
        return _NOTHING


def _place_of(holder: Any, attribute: str) -> str:
    if isinstance(holder, ModuleType):
        return "%s:%s" % (holder.__name__, attribute)
    return "%s:%s.%s" % (holder.__module__, holder.__qualname__, attribute)


def _module_of(name: str) -> str:
    """The module that must be there before a state can be put back."""
    if name.startswith(_IMPORT):
        return name[len(_IMPORT) :].partition(".")[0]
    if ":" in name:
        return name[1:].partition(":")[0]
    return options.PROBES[name[1:]].module if name[1:] in options.PROBES else ""


def _definitions(prelude: Mapping[str, Any]) -> Iterator[Tuple[str, Any]]:
    """The notebook's functions and classes that every step makes, with those inside of them."""
    seen: Set[int] = set()
    stack = list(reversed(list(prelude.items())))
    while stack:
        path, each = stack.pop()
        if id(each) in seen or getattr(each, "__module__", None) != MAIN:
            continue
        if isinstance(each, (type, FunctionType)) and not (
            isinstance(each, type) and issubclass(each, enum.Enum)
        ):
            seen.add(id(each))
            yield path, each
            inside = vars(each) if isinstance(each, type) else _cells(each)
            for name, value in inside.items():
                inner = getattr(value, "__func__", value)
                if isinstance(inner, (type, FunctionType)):
                    stack.append(("%s.%s" % (path, name), inner))


def _cells(function: Any) -> Dict[str, Any]:
    """What a closure holds, by the names of its variables."""
    if is_dispatching(function):
        return {}
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found["<%s>" % name] = cell.cell_contents
        except ValueError:  # it is not assigned yet
            continue
    return found


def _parts(definition: Any) -> Dict[str, Any]:
    """What a program can change of a function or class."""
    if isinstance(definition, type):
        parts = {
            name: value
            for name, value in vars(definition).items()
            if name not in _OF_EVERY_CLASS and not isinstance(value, MemberDescriptorType)
        }
        if "_abc_impl" in vars(definition):
            import abc

            parts["_abc_impl"] = [each() for each in vars(abc)["_get_dump"](definition)[0]]
        return parts
    parts = {"__defaults__": definition.__defaults__, "__kwdefaults__": definition.__kwdefaults__}
    if is_dispatching(definition):
        return {"registry": dict(definition.registry)}
    held = {name: value for name, value in vars(definition).items() if name != "__wrapped__"}
    return dict(parts, **held, **_cells(definition))


def _part(holder: Any, name: str) -> Any:
    value = _cells(holder)[name] if name.startswith("<") else vars(holder)[name]
    return getattr(value, "__func__", value)


def _set_part(holder: Any, name: str, value: Any) -> None:
    if name == "_abc_impl":
        for each in value:
            holder.register(each)
    elif name == "registry" and is_dispatching(holder):
        for kind, function in value.items():
            if holder.registry.get(kind) is not function:
                holder.register(kind, function)
    elif name.startswith("<"):
        at = holder.__code__.co_freevars.index(name[1:-1])
        holder.__closure__[at].cell_contents = value
    else:
        current: Any = getattr(holder, name, None)
        if (
            isinstance(holder, ModuleType)
            and type(current) is type(value)
            and type(value) in (list, dict, set)
        ):
            current.clear()  # others may have it under another name
            (current.extend if isinstance(current, list) else current.update)(value)
        else:
            setattr(holder, name, value)


# What the text says


def _stores(cell: int, tree: ast.AST) -> Iterator[Store]:
    """Where attributes are set, deleted, or changed by one of their methods."""
    for node in ast.walk(tree):
        target: Any = None
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            target = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = node.func.value
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") in ("setattr", "delattr")
            and node.args[1:]
        ):
            name = getattr(node.args[1], "value", None)
            target = ast.Attribute(node.args[0], name, ast.Store()) if isinstance(name, str) else None
        path: List[str] = []
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            if isinstance(target, ast.Attribute):
                path.insert(0, target.attr)
            else:
                path.clear()
            target = target.value
        if isinstance(target, ast.Name) and path:
            yield Store(cell, target.id, tuple(path))


def _imports(tree: ast.AST) -> Iterator[Tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.partition(".")[0],
                    (alias.name if alias.asname else alias.name.partition(".")[0]),
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, node.module + "." + alias.name


def _submodules(tree: ast.AST) -> Iterator[str]:
    """The modules inside of packages that are imported: they come with the package then."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if "." in alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (node.module + "." + alias.name for alias in node.names)
            if "." in node.module:
                yield node.module
