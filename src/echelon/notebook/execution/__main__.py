"""The executor of a pipeline run: `python -m echelon.notebook.execution FOLDER`, the program of a run of this
machine. It exits as the first step that failed."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from echelon.engines.abilities import StopOrder
from echelon.engines.base import Engine
from echelon.errors import ResultsIncomplete
from echelon.executor.execution import Execution
from echelon.executor.parent import Own, engine_of_steps, exit_code_of, run_executor
from echelon.model.event import Event
from echelon.model.program import DONE
from echelon.notebook.analysis.pipeline import Pipeline
from echelon.notebook.execution.choosing import choose_place
from echelon.notebook.execution.places import StepHost
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
from echelon.notebook.picture import graph_of


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
    engine = engine or engine_of_steps(record.on, record.context, record.namespace)
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


def _wind_up(
    pipeline: Pipeline, folder: PipelineFolder, work: NotebookSteps, place: StepHost
) -> PipelineRecord:
    """Have the files of the steps here, those of an earlier start among them, and write the reports."""
    missing = place.close() if any(map(_may_have_files, work.record.steps.values())) else ""
    write_reports(pipeline, folder, work.record)
    record = replace(work.record, missing=missing)
    write_record(folder, record)
    return record


def _may_have_files(step: StepRecord) -> bool:
    """Whether a cell of a step has run: only then can it have left files."""
    return step.state in DONE or step.cell is not None


def _work(own: Own) -> int:
    """As the first step that failed; 0 if all are done, and their files are here."""
    record = execute(PipelineFolder(Path(sys.argv[1])), own.tell, own.asked)
    if record.missing:
        print(record.missing, file=sys.stderr)
    code = exit_code_of(record.steps.values())
    return ResultsIncomplete.exit_code if record.missing and not code else code


def main() -> int:
    """Execute the pipeline run in the folder that is given, as the run that this process is a rank of."""
    return run_executor(_work)


if __name__ == "__main__":
    sys.exit(main())
