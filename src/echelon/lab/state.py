"""A notebook's run as the panel starts and shows it: how its steps stand, where one failed, what they print.

It is started by the command `echelon notebook run`, as a user would at a terminal, and one that was started
there is shown as well. Starting returns when the run is submitted; the run continues when the Jupyter server
or the browser ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from echelon.children import parents_of
from echelon.engines.base import RunDamaged
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.engines.decoding import decode
from echelon.errors import EchelonError, UnknownRun
from echelon.handle import Run
from echelon.lab.requests import RunRequest
from echelon.model.job import is_name
from echelon.model.program import Program, Step
from echelon.model.run import Record, RunRef
from echelon.model.status import FINAL
from echelon.model.surroundings import Surroundings
from echelon.notebook.analysis.cells import read_notebook
from echelon.notebook.kept.folder import PipelineFolder, StepRecord, read_record
from echelon.preparation.sources import Target, where_to_look
from echelon.values import frozen

_LINES = 200  # of a step's output: what a panel can show
_OF_CLUSTER = ("image", "volume", "context", "namespace")
_SHOWN = 4000  # characters of what a command said that submitted nothing


@frozen
class StepState:
    """How a step stands; `cell` and `line` are where it failed."""

    name: str
    state: str
    started: float | None = None
    ended: float | None = None
    cell: int | None = None
    line: int | None = None
    cell_id: str = ""  # once the run is over, where the notebook has ids
    reason: str = ""
    hint: str = ""
    traceback: str = ""
    has_output: bool = False


@frozen
class RunState:
    """How a notebook's run stands."""

    name: str
    state: str
    reason: str
    over: bool
    in_cluster: bool
    results: str  # seen from the notebook's folder
    steps: tuple[StepState, ...]
    metrics: Mapping[str, Any]


def newest_run(notebook: Path) -> Record | None:
    """The newest run of a notebook that this machine has started."""
    names = dict.fromkeys((str(notebook), str(notebook.resolve())))  # Jupyter's, and perhaps a terminal's
    own = [record for name in names for record in parents_of(name)]
    return max(own, key=lambda record: record.created, default=None)


def run_of(notebook: Path, name: str) -> Record:
    """A run of this notebook; raises UnknownRun if there is none of that name."""
    with suppress(UnknownRun, RunDamaged):
        record = choose_engine(LOCAL).read(RunRef(engine=LOCAL, name=name)) if is_name(name) else None
        program = record.job.program if record is not None else None
        if (
            record is not None
            and program is not None
            and Path(program.source).resolve() == notebook.resolve()
        ):
            return record
    raise UnknownRun(f"{notebook.name} has no run {name!r}", hint="run it")


def program_of(record: Record) -> Program:
    """What a run of a notebook is made of."""
    assert record.job.program is not None
    return record.job.program


def state_of(record: Record) -> RunState:
    """How a run stands now."""
    status = _run(record).status(progress=False)
    over = status.state in FINAL
    kept = _kept(record)
    ids = _cell_ids(record) if over and any(step.cell for step in status.steps) else ()
    return RunState(
        name=status.name,
        state=status.state,
        reason=status.reason or "",
        over=over,
        in_cluster=bool(program_of(record).place),
        results=_near(Path(record.results), Path(program_of(record).source).parent),
        steps=tuple(_step(step, kept.get(step.name, StepRecord()), ids) for step in status.steps),
        metrics={key: value for step in kept.values() for key, value in step.metrics.items()},
    )


def last_lines(record: Record, step: str) -> list[str]:
    """The last lines that a step has written; those of other ranks than 0 begin with the rank."""
    run = _run(record).steps().get(step)
    if run is None:
        raise UnknownRun(f"step {step!r} of {record.ref.name} has not run", hint="run it")
    return [f"[{line.rank}] {line.text}" if line.rank else line.text for line in run.logs(tail=_LINES)]


def stop(record: Record) -> str | None:
    """Stop a run, and the steps of it that run; what is returned is a note for the user."""
    return _run(record).stop(wait=False)


def place_of(record: Record) -> Target:
    """Where its steps run: the cluster's context and namespace of then, whatever kubectl is turned to now.
    Where none is recorded (in a pod) it is what holds in the notebook's folder.
    """
    program = program_of(record)
    here = Surroundings(folder=Path(program.source).parent, environment=dict(os.environ))
    on = CLUSTER if program.place else LOCAL
    return where_to_look(
        Target(on=on, context=program.context or None, namespace=program.namespace or None), here
    )


def _run(record: Record) -> Run:
    return Run(record.ref, choose_engine(LOCAL))


def _near(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _kept(record: Record) -> Mapping[str, StepRecord]:
    """What the executor has written down of the steps beside their states."""
    try:
        return read_record(PipelineFolder(Path(record.results))).steps
    except EchelonError:
        return {}


def _cell_ids(record: Record) -> Sequence[str]:
    """The ids of the cells that ran, by the executed notebook: in the editor they may have moved since."""
    try:
        document = read_notebook(Path(record.results, "notebook.ipynb")).document
        return [str(cell.get("id", "")) for cell in document["cells"]]
    except EchelonError:
        return ()


def _step(step: Step, kept: StepRecord, ids: Sequence[str]) -> StepState:
    return StepState(
        name=step.name,
        state=step.state,
        started=step.started,
        ended=step.ended,
        cell=step.cell,
        line=step.line,
        cell_id=ids[step.cell - 1] if step.cell is not None and step.cell <= len(ids) else "",
        reason=step.reason,
        hint=step.hint,
        traceback=kept.traceback if step.state == "failed" else "",
        has_output=bool(step.run),
    )


class StartFailed(EchelonError):
    """The command submitted no run; the message is what it said."""


@frozen
class _Submitted:
    name: str


def command_of(notebook: Path, asked: RunRequest, python: str | None) -> list[str]:
    """The command, as a user would type it in the notebook's folder; `python` is for its steps here."""
    words = [sys.executable, "-m", "echelon", "notebook", "run", "-d", "-o", "json", str(notebook)]
    words += ["--on", CLUSTER if asked.in_cluster else LOCAL]
    for name, text in asked.parameters.items():
        words += ["--param", f"{name}={text}"]
    if asked.no_gpus:
        words += ["--no-gpus"]
    if asked.start is not None:
        words += ["--from", asked.start]
    if asked.in_cluster:
        for name in _OF_CLUSTER:
            if text := getattr(asked, name):
                words += [f"--{name}", text]
    if python is not None and not asked.in_cluster:
        words += ["--python", python]
    return words


def continued(asked: RunRequest, program: Program) -> RunRequest:
    """A run continues where it is."""
    return replace(asked, context=program.context or None, namespace=program.namespace or None)


def start(notebook: Path, asked: RunRequest, python: str | None) -> str:
    """Start a run, or continue the newest one, and return its name; raises StartFailed if it is refused."""
    if asked.start is not None and (newest := newest_run(notebook)) is not None:
        asked = continued(asked, program_of(newest))
    done = subprocess.run(
        command_of(notebook, asked, python),
        cwd=notebook.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,  # who ends the server while it submits does not end it
        check=False,
    )
    try:
        return decode(done.stdout, _Submitted).name
    except msgspec.DecodeError:
        said = done.stderr.decode("utf-8", "replace")[-_SHOWN:].strip()
        raise StartFailed(said or "the command said nothing") from None
