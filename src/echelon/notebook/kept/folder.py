"""The folder of one pipeline run: what is in it, and what its executor has written down to
continue by. How it stands, the events of its run say.

::

    runs/NAME-1/
        pipeline.json     parameters, what was asked for, and what each step has made
        notebook.ipynb    the executed notebook; notebook.html beside it
        work/             the current directory of every step
        values/           variables between steps
        steps/STEP/       results of each step's run: outputs of its cells, logs
        program/          what the steps' processes ran
        secret            seals the variables; its owner's alone"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from echelon.engines.decoding import decode
from echelon.engines.durable import replace_file, write_file
from echelon.engines.reservation import make_runs
from echelon.errors import StateTrouble, from_os_error
from echelon.model.settings import Settings
from echelon.model.state import StepState
from echelon.notebook.kept.volume import RunVolume
from echelon.notebook.picture import Node
from echelon.values import frozen

PRIVATE = ("secret", "program", "values")  # what is in the folder and is not a result
SCHEMA = 2
_NEVER_LINKED = ("runs", "__pycache__")


@frozen
class PipelineOptions:
    """How a pipeline is run: settings of all its steps, and what only a pipeline has."""

    settings: Settings = field(default_factory=Settings)
    cache: bool = False
    parallel: int | None = None  # workers at the same time
    no_gpus: bool = False  # whatever the tags ask for
    image: str | None = None  # in a cluster, before the one that the notebook names
    volume: str | None = None  # in a cluster: pvc:NAME[/PATH] or new:[SIZE][@CLASS]
    volume_mode: str | None = None  # of a new one: rwx or rwo


@frozen
class StepRecord:
    """How a step stands, or how it ended."""

    state: StepState = "waiting"
    run: str = ""  # the address of its run
    started: float | None = None
    ended: float | None = None
    cell: int | None = None  # the cell that failed, and the line in it
    line: int | None = None
    reason: str = ""
    hint: str = ""
    traceback: str = ""
    exit_code: int | None = None
    key: str = ""  # the digest of all that its result depends on
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # that it made: size, time of change
    metrics: Mapping[str, Any] = field(default_factory=dict)


@frozen
class PipelineRecord:
    """A pipeline run, as `pipeline.json` has it: what its executor was asked for, and how far it has come."""

    name: str
    notebook: str
    created: float
    parameters: Mapping[str, Any] = field(default_factory=dict)  # as JSON has them
    given: Mapping[str, str] = field(default_factory=dict)  # the same, as `--param` gave them
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    on: str = ""  # where its steps run: "" is this machine
    context: str = ""  # and namespace: of the cluster, whether the command or the kubeconfig chose them
    namespace: str = ""
    volume: RunVolume | None = None  # in a cluster, what holds their values and files
    image: str = ""  # in a cluster, that of every step that names none; "" is the cluster's default
    graph: tuple[Node, ...] = ()  # of the notebook as it was then
    options: PipelineOptions = field(default_factory=PipelineOptions)
    todo: tuple[str, ...] = ()  # the steps that are run in this start; without any, all that are not done
    missing: str = ""  # the results that are not in its folder, and why
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class PipelineFolder:
    """The paths of a pipeline run."""

    path: Path

    @property
    def name(self) -> str:
        """The pipeline run's name."""
        return self.path.name

    @property
    def work(self) -> Path:
        """The working folder of all steps."""
        return self.path / "work"

    @property
    def values(self) -> Path:
        """The variables between steps."""
        return self.path / "values"

    @property
    def program(self) -> Path:
        """What the steps' processes run."""
        return self.path / "program"

    @property
    def secret(self) -> Path:
        """The secret that seals the variables."""
        return self.path / "secret"

    def results(self, step: str) -> Path:
        """The results of a step's run."""
        return self.path / "steps" / step


def make_folder(root: Path, name: str, taken: Iterable[str]) -> PipelineFolder:
    """The folder of the next pipeline run of that name; `taken` are the names of all runs that there are."""
    pattern = re.compile(rf"{re.escape(name)}-(\d+)(?:-.*)?")
    try:
        make_runs(root)
        root.mkdir(parents=True, exist_ok=True)
        there = [*taken, *(each.name for each in root.iterdir())]
        number = 1 + max((int(found[1]) for each in there if (found := pattern.fullmatch(each))), default=0)
        while True:
            path = root / f"{name}-{number}"
            try:
                path.mkdir()
                break
            except FileExistsError:
                number += 1
        folder = PipelineFolder(path)
        for each in (folder.work, folder.values, folder.program):
            each.mkdir()
        write_file(folder.secret, secrets.token_hex(32).encode())  # text: in pods it is a variable
    except OSError as error:
        raise from_os_error(error, root) from error
    return folder


def pipeline_folders(root: Path, name: str) -> list[PipelineFolder]:
    """All pipeline runs of that name, the oldest first."""
    pattern = re.compile(rf"{re.escape(name)}-(\d+)")
    try:
        names = [each.name for each in root.iterdir()]
    except OSError:
        return []
    numbers = {int(found[1]): each for each in names if (found := pattern.fullmatch(each))}
    paths = [root / numbers[number] for number in sorted(numbers)]
    return [PipelineFolder(path) for path in paths if (path / "pipeline.json").is_file()]


def link_project(folder: PipelineFolder, project: Path, *, above: bool) -> None:
    """Let the steps find what lies beside the notebook, by links: data is read where it is. What the steps
    make is in the working folder. With `above`, what lies beside the notebook's folder is found as well, as
    in `../data`.
    """
    for entry in sorted(project.iterdir()):
        _link(folder.work, entry)
    for entry in sorted(project.parent.iterdir()) if above else ():
        _link(folder.path, entry)


def is_shown(entry: Path) -> bool:
    """Whether the steps find what lies there, beside the notebook."""
    hidden = entry.name.startswith(".") or entry.name in _NEVER_LINKED
    return not hidden and not (entry / "pyvenv.cfg").exists()


def _link(place: Path, entry: Path) -> None:
    if not is_shown(entry):
        return
    link = place / entry.name
    if not link.exists() and not link.is_symlink():
        link.symlink_to(entry)


def read_record(folder: PipelineFolder) -> PipelineRecord:
    """The record of a pipeline run; raises StateTrouble if it cannot be read."""
    path = folder.path / "pipeline.json"
    try:
        return decode(path.read_bytes(), PipelineRecord)
    except OSError as error:
        raise from_os_error(error, path) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateTrouble(f"{path} cannot be read: {error}", hint="run the notebook anew") from None


def as_json(value: Any) -> Any:
    """A value as JSON has it; what it has no words for, as Python writes it."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return repr(value)


def write_record(folder: PipelineFolder, record: PipelineRecord, *, sync: bool = True) -> None:
    """Replace the record of a pipeline run; its executor continues by it, after a power cut too (`sync`)."""
    content = msgspec.json.format(msgspec.json.encode(record), indent=1)
    replace_file(folder.path / "pipeline.json", content, sync=sync)


def published(folder: PipelineFolder, step: str) -> dict[str, Any]:
    """What a step has handed on: its variables and metrics; nothing if it has not run."""
    try:
        found = msgspec.json.decode((folder.values / step / "published.json").read_bytes())
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def files_in(work: Path) -> dict[str, tuple[int, int]]:
    """The files of the working folder, each with its size and the time of its last change."""
    found = {}
    for path, folders, names in os.walk(work):
        folders[:] = [each for each in folders if not os.path.islink(os.path.join(path, each))]  # noqa: PTH114, PTH118 - many of them
        for name in names:
            full = Path(path, name)
            if not full.is_symlink():
                about = full.stat()
                found[str(full.relative_to(work))] = (about.st_size, about.st_mtime_ns)
    return found
