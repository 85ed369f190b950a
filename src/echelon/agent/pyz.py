"""What Python runs first of the agent as one file: `__main__.py` of the zip.

Python's own importer of zip files compiles each module twice, the first time only to know where it is. To
compile is most of what the start of an agent takes, so the modules are imported by `Sources` instead, which
has bytecode for some of them where the client's Python was of the same version."""

from __future__ import annotations

import marshal
import os
import signal
import sys
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER
from zipimport import zipimporter

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from types import CodeType, ModuleType


def bytecode_name() -> str:
    """What the bytecode for this version of Python is called in the zip file."""
    return "bytecode/%s-%s" % (sys.implementation.cache_tag, MAGIC_NUMBER.hex())


class Sources:
    """Imports the package `echelon` from a zip file."""

    def __init__(self, archive: str) -> None:
        self._files = zipimporter(archive)
        self._archive = archive
        self._compiled = self._read_bytecode()

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Read a module; None of one that is not ours."""
        if name.partition(".")[0] != "echelon":
            return None
        for end in (".py", "/__init__.py"):
            inside = name.replace(".", "/") + end
            try:
                source = self._files.get_data(inside)
            except OSError:
                continue
            place = os.path.join(self._archive, inside)
            spec = ModuleSpec(name, self, origin=place, loader_state=source)  # type: ignore[arg-type]
            spec.has_location = True
            if end != ".py":
                spec.submodule_search_locations = [os.path.dirname(place)]
            return spec
        return None

    def create_module(self, _spec: ModuleSpec) -> None:
        """As Python makes them."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a module that was read."""
        spec = module.__spec__
        assert spec is not None
        source, spec.loader_state = spec.loader_state, None
        code = self._compiled.pop(module.__name__, None)
        if code is None:
            code = compile(source, str(spec.origin), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102

    def _read_bytecode(self) -> dict[str, CodeType]:
        try:
            data = self._files.get_data(bytecode_name())
        except OSError:  # of another version, or none
            return {}
        compiled: dict[str, CodeType] = marshal.loads(data)  # noqa: S302 - from whom the sources are, too
        return compiled

    def get_source(self, name: str) -> str | None:
        """The text of a module, for the lines of a traceback."""
        found = self.find_spec(name)
        return None if found is None else found.loader_state.decode()


if __name__ == "__main__":
    # The first process of a container ignores signals without a handler: without this one, a pod that is
    # deleted before the agent sets its own would run until it is killed.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(194))
    sys.meta_path.insert(0, Sources(sys.path[0]))

    from echelon.agent.__main__ import main

    code = main()
    try:
        sys.stdout.flush()
    except OSError:  # the reader is gone
        pass
    # Skip the interpreter's shutdown, as the agent does when it is started as a module.
    os._exit(code)
