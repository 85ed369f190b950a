"""A pipeline run as the panel shows it: how its steps stand, what they print, and its end. A run that was
started at a terminal is shown as well."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.errors import EchelonError, UnknownRun
from echelon.handle import Run
from echelon.model.run import parse_uri
from echelon.model.status import FINAL, RunSummary
from echelon.model.surroundings import Surroundings
from echelon.notebook.analysis.cells import read_notebook
from echelon.notebook.kept.folder import PipelineRecord, StepRecord, order_stop
from echelon.notebook.kept.noted import Noted, noted, noted_pipelines
from echelon.notebook.removing import steps_of
from echelon.notebook.standing import StepStanding, standing_of
from echelon.preparation.sources import Target, where_to_look
from echelon.values import frozen

_LINES = 200  # of a step's output: what a panel can show


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
    """How a pipeline run stands."""

    name: str
    state: str
    reason: str
    over: bool
    in_cluster: bool
    results: str  # seen from the notebook's folder
    steps: tuple[StepState, ...]
    metrics: Mapping[str, Any]


def newest_run(notebook: Path) -> Noted | None:
    """The newest pipeline run of a notebook that this machine has started."""
    own = [found for found in noted_pipelines() if _is_of(found, notebook)]
    return max(own, key=lambda found: found.record.created, default=None)


def run_of(notebook: Path, name: str) -> Noted:
    """A pipeline run of this notebook; raises UnknownRun if there is none of that name."""
    found = noted(name)
    if found is None or not _is_of(found, notebook):
        raise UnknownRun(f"{notebook.name} has no pipeline run {name!r}", hint="run it")
    return found


def state_of(found: Noted) -> RunState:
    """How a pipeline run stands now."""
    found = noted(found.record.name) or found  # its end may have come between two looks
    ids = () if found.held else _cell_ids(found)
    standing = standing_of(found.record.name, found.record, _rows(found), held=found.held)
    return RunState(
        name=found.record.name,
        state=standing.state,
        reason=standing.reason,
        over=standing.state != "running",  # a step may outlive the command that ran it
        in_cluster=bool(found.record.on),
        results=_near(found.folder.path, Path(found.record.notebook).parent),
        steps=tuple(_step(step, found.record.steps[step.name], ids) for step in standing.steps),
        metrics={key: value for step in found.record.steps.values() for key, value in step.metrics.items()},
    )


def last_lines(found: Noted, step: str) -> list[str]:
    """The last lines that a step has written; those of other ranks than 0 begin with the rank."""
    known = found.record.steps.get(step)
    if known is None or not known.run:
        raise UnknownRun(f"step {step!r} of {found.record.name} has not run", hint="run it")
    engine = _engine_of(found.record)
    run = Run(parse_uri(known.run, CLUSTER if found.record.on else LOCAL), engine)
    return [f"[{line.rank}] {line.text}" if line.rank else line.text for line in run.logs(tail=_LINES)]


def stop(found: Noted) -> list[str]:
    """Stop the steps that run; the command that runs them leaves the others out. Returns what went wrong."""
    order_stop(found.folder)  # before the look at what runs: no step starts after it
    troubles = []
    engine = _engine_of(found.record)
    for row in steps_of(engine, found.record.name):
        if row.state in FINAL:
            continue
        try:
            Run(parse_uri(row.uri, LOCAL), engine).stop(wait=False)
        except EchelonError as error:
            troubles.append(f"run {row.name} cannot be stopped: {error}")
    return troubles


def place_of(record: PipelineRecord) -> Target:
    """Where its steps run: the cluster's context and namespace of then, whatever kubectl is turned to now.
    Where none is recorded (in a pod, by an older version), it is what holds in the notebook's folder.
    """
    here = Surroundings(folder=Path(record.notebook).parent, environment=dict(os.environ))
    on = CLUSTER if record.on else LOCAL
    return where_to_look(
        Target(on=on, context=record.context or None, namespace=record.namespace or None), here
    )


def _engine_of(record: PipelineRecord) -> Engine:
    place = place_of(record)
    return choose_engine(place.on, context=place.context, namespace=place.namespace)


def _near(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _is_of(found: Noted, notebook: Path) -> bool:
    return Path(found.record.notebook).resolve() == notebook.resolve()


def _cell_ids(found: Noted) -> Sequence[str]:
    """The ids of the cells that ran, by the executed notebook: in the editor they may have moved since."""
    if not any(step.cell for step in found.record.steps.values()):
        return ()
    try:
        return [
            str(cell.get("id", ""))
            for cell in read_notebook(found.folder.path / "notebook.ipynb").document["cells"]
        ]
    except EchelonError:
        return ()


def _rows(found: Noted) -> Sequence[RunSummary]:
    """The runs of its steps, where its record cannot tell: the command that ran them was killed."""
    if found.held or all(step.state != "running" for step in found.record.steps.values()):
        return ()
    with suppress(EchelonError, OSError):
        return steps_of(_engine_of(found.record), found.record.name)
    return ()


def _step(standing: StepStanding, step: StepRecord, ids: Sequence[str]) -> StepState:
    return StepState(
        name=standing.name,
        state=standing.state,
        started=standing.started,
        ended=standing.ended,
        cell=step.cell,
        line=step.line,
        cell_id=ids[step.cell - 1] if step.cell is not None and step.cell <= len(ids) else "",
        reason=standing.reason,
        hint=step.hint,
        traceback=step.traceback,
        has_output=bool(step.run) and step.state != "cached",
    )
