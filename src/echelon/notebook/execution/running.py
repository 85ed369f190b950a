"""A notebook from its file to a pipeline run that is over: what `echelon notebook run` calls.

A pipeline run is new, NAME-1, NAME-2, ..., or, with `start` or `only`, the newest one continued."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from echelon.engines.base import Engine
from echelon.errors import EchelonError, InvalidJob, UnknownRun
from echelon.model.job import check_name
from echelon.model.step_names import base_name, run_name
from echelon.notebook.analysis.pipeline import Pipeline, read_pipeline, step_named
from echelon.notebook.execution.choosing import check_gpus, check_same_place, choose_place, without_gpus
from echelon.notebook.execution.execute import Execution, Options, Watcher
from echelon.notebook.kept.folder import (
    HAS_VALUES,
    PipelineFolder,
    PipelineRecord,
    StepRecord,
    as_json,
    held,
    make_folder,
    pipeline_folders,
    read_record,
    write_record,
)
from echelon.notebook.kept.noted import note_pipeline
from echelon.notebook.kept.report import write_reports
from echelon.notebook.kept.volume import RunVolume
from echelon.notebook.picture.graph import graph_of
from echelon.preparation.prepare import Prepared
from echelon.values import frozen


@frozen
class Request:
    """What the user asks for."""

    notebook: Path
    parameters: Mapping[str, str]
    name: str | None = None
    start: str | None = None  # continue the newest run at this step
    only: str | None = None  # run this step alone, on the variables of the newest run
    root: Path = Path("runs")
    options: Options = Options()


@frozen
class Finished:
    """A pipeline run that is over."""

    record: PipelineRecord
    folder: PipelineFolder

    @property
    def succeeded(self) -> bool:
        """Whether every step has."""
        return all(step.state in HAS_VALUES for step in self.record.steps.values())


def run_notebook(request: Request, engine: Engine, watcher: Watcher) -> Finished:
    """Run a notebook; raises InvalidNotebook before anything exists if it cannot work."""
    again = request.start or request.only
    texts = request.parameters
    pipeline = _read(request, None if again and not texts else texts)
    for text in pipeline.warnings:
        watcher.notice(text)
    name = base_name(request.name or pipeline.name)
    check_name(f"{name}-1")
    continued = None if again is None else _continued(request, pipeline, name, again)
    options = request.options
    if continued is not None and options.image is None:
        options = replace(options, image=continued[1].image or None)
    choice = choose_place(pipeline, engine, options, watcher.notice)
    if again is not None and continued is not None:
        folder, record, todo = continued
        check_same_place(record, engine, again)
        if texts and dict(texts) != dict(record.given):
            watcher.notice("steps that are not run again were made with other parameters")
        if not texts and record.given:
            pipeline = _read(request, record.given)
        check_gpus(choice, [step for step in pipeline.steps if step.name in todo], engine)
    else:
        check_gpus(choice, pipeline.steps, engine)
        folder = make_folder(request.root.absolute(), name, choice.names_taken())
        steps = {step.name: StepRecord() for step in pipeline.steps}
        try:
            record = PipelineRecord(
                name=folder.name,
                notebook=str(request.notebook.absolute()),
                created=time.time(),
                parameters={key: as_json(value) for key, value in pipeline.values.items()},
                given=texts,
                steps=steps,
                on=engine.traits.place if engine.traits.remote else "",
                context=engine.where.context,  # and not what kubectl is turned to later
                namespace=engine.where.namespace,
                volume=choice.open_volume(folder.name),
                image=choice.image or "",
                graph=graph_of(pipeline),
            )
            write_record(folder, record)
        except BaseException:  # nothing has run: nothing is left
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        todo = frozenset(steps)
    with held(folder):
        record = replace(record, over=False)
        write_record(folder, record)
        note_pipeline(folder)
        try:
            place = choice.place(pipeline, folder, record.volume)
        except EchelonError as error:
            write_record(folder, _refused(record, todo, error))
            raise
        left = f"the files of the steps stay on {record.volume}/work" if record.volume is not None else ""
        execution = Execution(pipeline, folder, record, engine, place, watcher, options)
        try:
            execution.run(todo)
            left = place.close() if execution.began else ""
        except (KeyboardInterrupt, SystemExit):
            again = next((name for name, step in execution.record.steps.items() if _is_left(step)), None)
            if again is not None:
                watcher.notice(f"{folder.name} was stopped; --from {again} goes on there")
            raise
        finally:
            try:
                write_reports(pipeline, folder, execution.record)
            finally:  # whatever went wrong, this command has told it
                missing = left if any(map(_has_run, execution.record.steps.values())) else ""
                finished = replace(execution.record, over=True, missing=missing)
                write_record(folder, finished)
    return Finished(record=finished, folder=folder)


def _read(request: Request, parameters: Mapping[str, str] | None) -> Pipeline:
    found = read_pipeline(request.notebook, parameters)
    return without_gpus(found) if request.options.no_gpus else found


def _refused(record: PipelineRecord, todo: Collection[str], error: EchelonError) -> PipelineRecord:
    """A pipeline run of which nothing can start."""
    why = StepRecord(state="failed", reason=error.message, hint=error.hint or "", exit_code=error.exit_code)
    return replace(record, over=True, steps={**record.steps, **dict.fromkeys(todo, why)})


def _has_run(step: StepRecord) -> bool:
    """Whether a cell of a step has run: only then can it have left files."""
    return step.state in HAS_VALUES or step.cell is not None


def _is_left(step: StepRecord) -> bool:
    return step.state not in HAS_VALUES


@frozen
class Preview:
    """What a pipeline run would be: the jobs of its steps, by name, and the volume between them."""

    name: str
    steps: Mapping[str, Prepared]
    volume: RunVolume | None = None


def preview_notebook(request: Request, engine: Engine, watcher: Watcher) -> Preview:
    """What `run_notebook` would submit; nothing is made that stays."""
    pipeline = _read(request, request.parameters)
    for text in pipeline.warnings:
        watcher.notice(text)
    choice = choose_place(pipeline, engine, request.options, watcher.notice)
    name, root = base_name(request.name or pipeline.name), request.root
    there = [each.name for each in root.iterdir()] if root.is_dir() else []
    with tempfile.TemporaryDirectory() as scratch:
        folder = make_folder(Path(scratch), name, [*choice.names_taken(), *there])
        volume = choice.open_volume(folder.name, dry_run=True)
        place = choice.place(pipeline, folder, volume)
        place.open()
        steps = {
            step.name: _moved(place.prepare(step, run_name(folder.name, step.name), {}), scratch, root)
            for step in pipeline.steps
        }
    return Preview(name=folder.name, steps=steps, volume=volume)


def _moved(prepared: Prepared, scratch: str, root: Path) -> Prepared:
    """The same job in the folder that it would be in."""

    def moved(text: str) -> str:
        return text.replace(scratch, str(root.absolute()))

    job = prepared.job
    job = replace(job, script=moved(job.script or ""), cwd=moved(job.cwd), results=moved(job.results or ""))
    return replace(prepared, job=replace(job, args=tuple(map(moved, job.args))))


def _newest_of(request: Request, name: str) -> tuple[PipelineFolder, PipelineRecord]:
    """The newest run of that name that was made of this notebook: another notebook may have the same name."""
    others = ""
    for folder in reversed(pipeline_folders(request.root.absolute(), name)):
        record = read_record(folder)
        made_of = Path(record.notebook)
        moved = made_of.name == request.notebook.name and not made_of.exists()
        if made_of == request.notebook.absolute() or moved:
            return folder, record
        others = others or f"; {folder.name} is of {made_of}"
    raise UnknownRun(
        f"there is no run of {request.notebook.name} named {name!r} in {request.root} to continue{others}",
        hint="run the whole notebook first; --name says another name, --results another folder",
    )


def _continued(
    request: Request, pipeline: Pipeline, name: str, again: str
) -> tuple[PipelineFolder, PipelineRecord, frozenset[str]]:
    """The newest run, and the steps of it that run again: one alone, or one and all after it, and what never
    succeeded."""
    folder, record = _newest_of(request, name)
    step_named(pipeline, again)
    done = {each for each, step in record.steps.items() if step.state in HAS_VALUES}
    todo = {again}
    if request.only is None:
        todo |= {step.name for step in pipeline.steps if again in step.before or step.name not in done}
    for step in pipeline.steps:
        missing = [each for each in step.after if each not in todo and each not in done]
        if step.name in todo and missing:
            raise InvalidJob(
                "only" if request.only else "from",
                again,
                f"comes after step {missing[0]}, which has no result yet",
                hint=f"--from {missing[0]} runs both",
            )
    steps = {
        step.name: record.steps.get(step.name, StepRecord())
        if step.name in todo or step.name not in done
        else replace(record.steps[step.name], state="kept")
        for step in pipeline.steps
    }
    return folder, replace(record, steps=steps, graph=graph_of(pipeline)), frozenset(todo)
