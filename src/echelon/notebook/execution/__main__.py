"""The executor of a pipeline run: `python -m echelon.notebook.execution FOLDER`, the program of a run of this
machine. It exits as the first step that failed."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from echelon.agent.gang.verdict import STOPPED_EXIT_CODE
from echelon.engines.abilities import StopOrder
from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.errors import EchelonError, ResultsIncomplete
from echelon.executor.execution import Execution
from echelon.executor.parent import Own, await_children
from echelon.model.event import Event
from echelon.model.program import DONE
from echelon.notebook.analysis.pipeline import Pipeline
from echelon.notebook.execution.choosing import choose_place
from echelon.notebook.execution.places import Place
from echelon.notebook.execution.running import read
from echelon.notebook.execution.steps import NotebookSteps, known, opened, steps_of
from echelon.notebook.kept.folder import (
    PipelineFolder,
    PipelineRecord,
    StepRecord,
    read_record,
    write_record,
)
from echelon.notebook.kept.report import write_reports
from echelon.notebook.picture.graph import graph_of


def execute(
    folder: PipelineFolder,
    report: Callable[[Event], object],
    asked: Callable[[], StopOrder | None] = lambda: None,
    engine: Engine | None = None,
) -> PipelineRecord:
    """Run the steps of a pipeline run that are to be run; returns how all stand then."""

    def note(text: str) -> None:
        report(Event(kind="note", at=time.time(), reason=text))

    record = read_record(folder)
    pipeline = read(Path(record.notebook), record.given, record.options)
    steps = known(pipeline, record)
    todo = [name for name in steps if name in (record.todo or steps) and steps[name].state not in DONE]
    record = replace(record, steps=opened(steps, todo), graph=graph_of(pipeline), todo=(), missing="")
    engine = engine or _engine_of(record)
    options = replace(record.options, image=record.options.image or record.image or None)
    place = choose_place(pipeline, engine, options, note).place(pipeline, folder, record.volume)
    place.open()
    work = NotebookSteps(pipeline, folder, record, place, options)
    try:
        Execution(folder.name, steps_of(record), work, engine, report, asked).run()
    finally:
        record = _wind_up(pipeline, folder, work, place)
    if record.missing:
        note(record.missing)
    else:
        report(
            Event(kind="steps", at=time.time(), steps=(), fetched_to=f"{socket.gethostname()}:{folder.path}")
        )
    return record


def _wind_up(pipeline: Pipeline, folder: PipelineFolder, work: NotebookSteps, place: Place) -> PipelineRecord:
    """Have the files of the steps here, those of an earlier start among them, and write the reports."""
    missing = place.close() if any(map(_may_have_files, work.record.steps.values())) else ""
    write_reports(pipeline, folder, work.record)
    record = replace(work.record, missing=missing)
    write_record(folder, record)
    return record


def _may_have_files(step: StepRecord) -> bool:
    """Whether a cell of a step has run: only then can it have left files."""
    return step.state in DONE or step.cell is not None


def exit_code_of(record: PipelineRecord) -> int:
    """As the first step that failed; 0 if all are done, and their files are here."""
    steps = record.steps.values()
    if all(step.state in DONE for step in steps):
        return ResultsIncomplete.exit_code if record.missing else 0
    return next((step.exit_code for step in steps if step.exit_code), STOPPED_EXIT_CODE)


def _engine_of(record: PipelineRecord) -> Engine:
    return choose_engine(
        CLUSTER if record.on else LOCAL, context=record.context or None, namespace=record.namespace or None
    )


def main() -> int:
    """Execute the pipeline run in the folder that is given, as the run that this process is a rank of."""
    own = Own()
    try:
        record = execute(PipelineFolder(Path(sys.argv[1])), own.tell, own.asked)
    except EchelonError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        await_children()
    if record.missing:
        print(record.missing, file=sys.stderr)
    return exit_code_of(record)


if __name__ == "__main__":
    sys.exit(main())
