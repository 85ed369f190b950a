"""Where a Python object can be imported from, and which folders must be shipped for it.

An object with a name in a file is shipped by that name; this module decides when that is possible.
"""

from __future__ import annotations

import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType


def import_path(value: object) -> tuple[str, str] | None:
    """The module and the dotted name under which a fresh interpreter finds this very object, else None.

    The shortest package that offers the object is preferred (`torch.nn`, not `torch.nn.modules.linear`):
    users type it, and it changes less between versions.
    """
    try:
        owner = getattr(value, "__self__", None)
        module_name = getattr(value, "__module__", None) or getattr(type(owner), "__module__", None)
        paths = [getattr(value, "__qualname__", None), getattr(value, "__name__", None)]
    except Exception:  # noqa: BLE001 - a value's own __getattr__ may raise anything; then it has no name
        return None
    if isinstance(owner, type):  # a class method
        module_name, paths = owner.__module__, [f"{owner.__qualname__}.{paths[1]}"]
    elif owner is not None and not isinstance(owner, ModuleType):
        # `random.choice` is a bound method of an object that is private to the module.
        module_name, paths = type(owner).__module__, paths[1:]
    if not isinstance(module_name, str):
        return None
    parts = module_name.split(".")
    for length in range(1, len(parts) + 1):
        module = sys.modules.get(".".join(parts[:length]))
        for path in paths if module is not None and can_import(module) else ():
            if isinstance(path, str) and same(look_up(vars(module), path), value):
                return ".".join(parts[:length]), path
    return _held_by_a_module(value) if isinstance(value, FunctionType) and value.__closure__ else None


def _held_by_a_module(function: FunctionType) -> tuple[str, str] | None:
    """The path of a function that a decorator put, under another name, in the place of the typed one."""
    for module in list(sys.modules.values()):
        if can_import(module) and local_root(module) is not None:
            for name, held in vars(module).items():
                if held is function:
                    return module.__name__, name
    return None


def same(found: object, value: object) -> bool:
    """Whether both are one object; each look-up creates a new bound method, so what it binds is compared."""
    if found is value:
        return True
    if type(found) is not type(value) or getattr(value, "__self__", None) is None:
        return False
    return getattr(found, "__self__", None) is getattr(value, "__self__", None) and bool(found == value)


def look_up(names: Mapping[str, object], path: str) -> object:
    """The object at a dotted path in a namespace; None if there is none."""
    first, *rest = path.split(".")
    found = names.get(first)
    for name in rest:
        found = getattr(found, name, None)
    return found


def can_import(module: ModuleType) -> bool:
    """Whether another process finds the module by its name, given the shipped folders."""
    name = getattr(module, "__name__", "__main__")
    if name in ("__main__", "__mp_main__") or name not in sys.modules:
        return False
    if getattr(module, "__spec__", None) is None:  # made by hand, with types.ModuleType
        return False
    return not _has_files(module) or _is_installed(_file_of(module)) or import_root(module) is not None


def import_root(module: ModuleType) -> Path | None:
    """The folder that must be on sys.path to import the module by its name; None if there is none."""
    path = _file_of(module)
    path = path.parent if path.name.startswith("__init__.") else path.with_name(path.name.split(".")[0])
    parts = module.__name__.split(".")
    return path.parents[len(parts) - 1] if list(path.parts[-len(parts) :]) == parts else None


def local_root(module: ModuleType) -> Path | None:
    """As `import_root`, but only for a module that is neither installed nor built in."""
    if not _has_files(module) or _is_installed(_file_of(module)):
        return None
    return import_root(module)


def local_root_by_name(name: str) -> Path | None:
    """The folder that `import name` needs when the module is not installed; found without importing it."""
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is not None and spec.submodule_search_locations:
        folder = Path(next(iter(spec.submodule_search_locations))).absolute().parent
    elif spec is not None and spec.has_location and spec.origin:
        folder = Path(spec.origin).absolute().parent
    else:
        return None
    return None if _is_installed(folder) else folder


def project_of(folder: Path) -> Path:
    """The nearest folder at or above with a `pyproject.toml` or `.git`, else the folder itself."""
    for candidate in (folder, *folder.parents):
        if (candidate / "pyproject.toml").is_file() or (candidate / ".git").exists():
            return candidate
    return folder


def search_folders(project: Path, roots: Iterable[Path]) -> tuple[str, ...]:
    """The folders of a project to search for modules: the required ones, then those of our own sys.path."""
    own = [
        path for entry in sys.path if (path := Path(entry).absolute()).is_dir() and not _is_installed(path)
    ]
    inside = (folder for folder in (*roots, *own) if folder.is_relative_to(project))
    return tuple(dict.fromkeys(folder.relative_to(project).as_posix() for folder in inside))


def _has_files(module: ModuleType) -> bool:
    return bool(getattr(module, "__file__", None) or list(getattr(module, "__path__", ())))


def _file_of(module: ModuleType) -> Path:
    file = getattr(module, "__file__", None)
    return Path(file or Path(next(iter(module.__path__)), "__init__.py")).absolute()


def _is_installed(path: Path) -> bool:
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return any(path.is_relative_to(folder) for folder in _installed_folders())


@cache
def _installed_folders() -> tuple[Path, ...]:
    known = sysconfig.get_paths()
    folders = {known[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(Path(folder) for folder in folders | {*site.getsitepackages(), site.getusersitepackages()})
