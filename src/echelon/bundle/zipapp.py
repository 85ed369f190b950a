"""The agent as one file that any Python 3.8 can run, its bytecode, and pip's wheel for images without pip.

Both are shipped beside the code: `python3 -S agent.pyz TASK` is the command of a pod's container. The same
sources give the same bytes, so that two shipments can be compared. The sources are read as package resources,
so that any kind of installation works.

In a pod, to compile the modules that an agent imports before its ranks start is most of what a start takes:
their bytecode is for Pythons of this one's version; any other compiles the sources, which are shipped all the
same.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_PACKAGE = "echelon.agent"
# Where the imports of a start begin: those inside of functions are not found by reading.
_ROOTS = (
    "__main__",
    "watch",
    "agent",
    "orders",
    "gang.leader",
    "gang.join",
    "setup.unpack",
    "ranks.cgroups",
    "ranks.reports",
    "ranks.shell",
)
_IMPORT = re.compile(r"^from (echelon\.agent[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
_MAIN = "echelon/agent/pyz.py"
_ROOT = '"""The agent\'s part of echelon, shipped to where it runs."""\n'
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold


def compile_start(sources: Mapping[str, bytes]) -> bytes:
    """The code of these modules by their names; `sources` are all modules by their paths in the archive."""
    paths = {module_name(path): path for path in sources}
    needed = _imported([f"{_PACKAGE}.{root}" for root in _ROOTS], paths, sources)
    return marshal.dumps(
        {name: compile(sources[paths[name]], paths[name], "exec", dont_inherit=True) for name in needed}
    )


def _imported(names: list[str], paths: Mapping[str, str], sources: Mapping[str, bytes]) -> Iterator[str]:
    """These modules, the packages that they are in, and what all of them import as they are imported."""
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen or name not in paths:
            continue
        seen.add(name)
        yield name
        names += filter(None, [name.rpartition(".")[0]])
        for module, words in _IMPORT.findall(sources[paths[name]].decode()):
            names += [module, *(f"{module}.{word}" for word in re.findall(r"\w+", words))]


def module_name(path: str) -> str:
    """What the module of a path in the archive is called."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def agent_archive() -> bytes:
    """A zip of the package `echelon.agent` with a `__main__`, made once per process."""
    return archive_of(agent_sources())


def agent_sources() -> dict[str, bytes]:
    """What stands in the agent's archive."""
    sources = dict(_python_files(_agent_package(), "echelon/agent"))
    main = sources.pop(_MAIN)
    return {**sources, "__main__.py": main, "echelon/__init__.py": _ROOT.encode()}


def _agent_package() -> Path | Traversable:
    import echelon.agent

    folder = Path(echelon.agent.__path__[0])
    if folder.is_dir():  # as almost always: what reads other installations takes longer than all files
        return folder
    from importlib.resources import files

    return files("echelon.agent")


def _python_files(folder: Path | Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Every module below a package, with its path in the archive."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _python_files(entry, f"{name}/{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{name}/{entry.name}", entry.read_bytes()


@cache
def pip_wheel() -> bytes | None:
    """The wheel of pip that came with this Python, if any; pip runs from it without installation."""
    import sysconfig
    from importlib.resources import files

    places = [files("ensurepip").joinpath("_bundled")]
    if folder := sysconfig.get_config_var("WHEEL_PKG_DIR"):  # where Linux distributions keep it
        places.append(Path(folder))
    for place in places:
        if place.is_dir():
            for entry in sorted(place.iterdir(), key=lambda each: each.name):
                if entry.name.startswith("pip-") and entry.name.endswith(".whl"):
                    return entry.read_bytes()
    return None


def archive_of(sources: Mapping[str, bytes]) -> bytes:
    """A zip of these files; equal ones give equal bytes."""
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(sources):
            info = zipfile.ZipInfo(name, date_time=_EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            info.create_system = 3  # Unix, on every machine
            archive.writestr(info, sources[name])
    return buffer.getvalue()
