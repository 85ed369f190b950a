"""Bytecode of the modules that an agent imports before its ranks start: in a pod, to compile them is most of
what that takes. It is for Pythons of this one's version; any other compiles the sources, which are shipped
all the same."""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterator, Mapping

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
