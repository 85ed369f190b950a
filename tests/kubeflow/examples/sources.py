"""Where Kubeflow's own examples are: in the modules of its controllers, and in the description of its Python
package. They are read at test time, and no copy of them is kept here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from testbed.fixtures import give_up

from echelon.errors import Unavailable
from testbed import modules, sdk

TRAINING_OPERATOR = ("training-operator", "github.com/kubeflow/training-operator")
MPI_OPERATOR = ("job-controllers", "github.com/kubeflow/mpi-operator")
TRAINER = ("job-controllers", "github.com/kubeflow/trainer/v2")
MODULES = {"training-operator": TRAINING_OPERATOR, "mpi-operator": MPI_OPERATOR, "trainer": TRAINER}
CLIENT = "kubeflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A file, of which `root` are all examples of its module."""

    module: str
    root: Path
    path: Path

    @property
    def key(self) -> str:
        return f"{self.module}/{self.path.relative_to(self.root)}"


def release(module: str) -> str:
    """What the table calls a module."""
    return f"{module} {modules.version(*MODULES[module]).removeprefix('v')}"


def folder_of(module: str, inner: str = "examples") -> Path:
    """The folder of a module, fetched alone if it is not in the cache."""
    try:
        return modules.fetch(*MODULES[module], inner)
    except Unavailable as error:
        give_up(str(error))


def files(ending: str) -> list[Example]:
    """Every example whose name ends so, of all modules."""
    roots = {module: folder_of(module) for module in MODULES}
    return [
        Example(module=module, root=root, path=path)
        for module, root in roots.items()
        for path in sorted(root.rglob(f"*.{ending}"))
    ]


def example(key: str) -> Example:
    """The example of that name."""
    module, _, inner = key.partition("/")
    root = folder_of(module)
    return Example(module=module, root=root, path=root / inner)


def entrypoint(found: Example) -> tuple[str, ...] | None:
    """What the image of an example starts, by the Dockerfile beside it."""
    candidates = [folder / "Dockerfile" for folder in (found.path.parent, found.path.parent.parent)]
    said = [
        re.search(r"^ENTRYPOINT (\[.*\])$", file.read_text(), re.MULTILINE)
        for file in candidates
        if file.exists()
    ]
    return next((tuple(json.loads(each[1])) for each in said if each), None)


def cells(found: Example) -> list[str]:
    """The code of a notebook, without the lines that are a shell's."""
    sources = (
        "".join(cell["source"])
        for cell in json.loads(found.path.read_text())["cells"]
        if cell["cell_type"] == "code"
    )
    return [re.sub(r"^\s*[!%].*$", "", source, flags=re.MULTILINE) for source in sources]


def readme_examples() -> list[str]:
    """The Python code in the description of Kubeflow's client on PyPI."""
    return re.findall(r"^```python\n(.*?)^```", sdk.description(CLIENT), re.MULTILINE | re.DOTALL)
