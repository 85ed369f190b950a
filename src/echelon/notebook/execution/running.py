"""A notebook from its file to a run: what `echelon notebook run` calls.

A pipeline run is new, NAME-1, NAME-2, ..., or, with `start` or `only`, the newest one continued. An executor
(`__main__.py`), the program of an ordinary run of this machine, runs its steps."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from echelon.engines.base import Engine
from echelon.engines.choose import LOCAL, choose_engine
from echelon.errors import InvalidJob, RunExists, UnknownRun
from echelon.executor.parent import job_of_parent
from echelon.handle import Run
from echelon.model.job import GRACE, check_name
from echelon.model.program import DONE, Program
from echelon.model.resources import parse_duration
from echelon.model.run import RunRef
from echelon.model.status import FINAL
from echelon.model.step_names import base_name, run_name
from echelon.notebook.analysis.pipeline import Pipeline, read_pipeline, step_named
from echelon.notebook.execution.choosing import (
    Choice,
    check_gpus,
    check_same_place,
    choose_place,
    without_gpus,
)
from echelon.notebook.execution.steps import known, opened
from echelon.notebook.kept.folder import (
    PRIVATE,
    PipelineFolder,
    PipelineOptions,
    PipelineRecord,
    StepRecord,
    as_json,
    make_folder,
    pipeline_folders,
    read_record,
    write_record,
)
from echelon.notebook.kept.volume import RunVolume
from echelon.notebook.picture import graph_of
from echelon.preparation.prepare import Prepared
from echelon.resuming import resume
from echelon.submit import submit
from echelon.values import frozen

Tell = Callable[[str], object]
_EXECUTOR = "echelon.notebook.execution"


@frozen
class Request:
    """What the user asks for."""

    notebook: Path
    parameters: Mapping[str, str]
    name: str | None = None
    start: str | None = None  # continue the newest run at this step
    only: str | None = None  # run this step alone, on the variables of the newest run
    root: Path = Path("runs")
    timeout: float | None = None  # of the whole
    options: PipelineOptions = PipelineOptions()


def run_notebook(request: Request, engine: Engine, tell: Tell) -> Run:
    """Start a notebook's run, whose steps run in `engine`'s place; raises InvalidNotebook before anything
    exists if it cannot work.
    """
    return _run_again(request, engine, tell) if request.start or request.only else _run(request, engine, tell)


def _run(request: Request, engine: Engine, tell: Tell) -> Run:
    options = request.options
    pipeline = read(request.notebook, request.parameters, options)
    name, choice = _checked(request, pipeline, engine, options, tell)
    check_gpus(choice, pipeline.steps, engine)
    folder = make_folder(request.root.absolute(), name, choice.names_taken())
    try:
        record = PipelineRecord(
            name=folder.name,
            notebook=str(request.notebook.absolute()),
            created=time.time(),
            parameters={key: as_json(value) for key, value in pipeline.values.items()},
            given=request.parameters,
            steps={step.name: StepRecord() for step in pipeline.steps},
            on=engine.traits.place if engine.traits.remote else "",
            context=engine.where.context,  # and not what kubectl is turned to later
            namespace=engine.where.namespace,
            volume=choice.open_volume(folder.name),
            image=choice.image or "",
            graph=graph_of(pipeline),
            options=options,
        )
        choice.place(pipeline, folder, record.volume)  # raises for what does not fit there
        return _submit(folder, record, request)
    except BaseException:  # nothing has run: nothing is left
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


def _run_again(request: Request, engine: Engine, tell: Tell) -> Run:
    """Start the newest run again, with the steps of it that are to be run again: one alone, or one and all
    after it, and what never succeeded.
    """
    again, texts = request.start or request.only or "", request.parameters
    pipeline = read(request.notebook, texts or None, request.options)
    name = base_name(request.name or pipeline.name)
    folder, before = _newest_of(request, name)
    options = replace(request.options, image=request.options.image or before.image or None)
    _, choice = _checked(request, pipeline, engine, options, tell)
    todo = _to_run(request, pipeline, before, again)
    check_same_place(before, engine, again)
    given = texts or before.given
    if texts and dict(texts) != dict(before.given):
        tell("steps that are not run again were made with other parameters")
    if not texts and given:
        pipeline = read(request.notebook, given, options)
    check_gpus(choice, [step for step in pipeline.steps if step.name in todo], engine)
    record = replace(
        before,
        notebook=str(request.notebook.absolute()),
        parameters={key: as_json(value) for key, value in pipeline.values.items()},
        given=given,
        steps={**opened(known(pipeline, before), ()), **dict.fromkeys(todo, StepRecord())},
        graph=graph_of(pipeline),
        options=options,
        todo=tuple(todo),
    )
    return _resume(folder, before, record, request)


def read(notebook: Path, parameters: Mapping[str, str] | None, options: PipelineOptions) -> Pipeline:
    """The pipeline that a notebook is, with these parameters."""
    found = read_pipeline(notebook, parameters)
    return without_gpus(found) if options.no_gpus else found


def _checked(
    request: Request, pipeline: Pipeline, engine: Engine, options: PipelineOptions, tell: Tell
) -> tuple[str, Choice]:
    """The name, and the place where the steps would run."""
    for text in pipeline.warnings:
        tell(text)
    name = base_name(request.name or pipeline.name)
    check_name(f"{name}-1")
    return name, choose_place(pipeline, engine, options, tell)


def _submit(folder: PipelineFolder, record: PipelineRecord, request: Request) -> Run:
    write_record(folder, record)
    volume = record.volume
    program = Program(
        title="notebook",
        source=record.notebook,
        place=record.on,
        context=record.context,
        namespace=record.namespace,
        volume="" if volume is None else f"{volume.claim}/{volume.path}",
        volume_uid=volume.uid if volume is not None and volume.made else "",
        private=PRIVATE,
    )
    text = record.options.settings.grace
    grace = GRACE if text is None else parse_duration("grace", text)
    job = job_of_parent(
        folder.name, folder.path, _EXECUTOR, [str(folder.path)], program, grace=grace, timeout=request.timeout
    )
    return submit(Prepared(job=job), choose_engine(LOCAL), stays=False)


def _resume(folder: PipelineFolder, before: PipelineRecord, record: PipelineRecord, request: Request) -> Run:
    """Start the run of a folder again; it is made anew where it was removed."""
    engine = choose_engine(LOCAL)
    run = Run(RunRef(engine=LOCAL, name=folder.name), engine)
    try:
        status = run.status(progress=False)
    except UnknownRun:
        return _submit(folder, record, request)
    if status.state not in FINAL:
        raise RunExists(f"{folder.name} is {status.state}", hint="wait for its end, or stop it")
    write_record(folder, record)
    try:
        resume(RunRef(engine=LOCAL, name=folder.name), engine, status, again=True)
    except BaseException:
        write_record(folder, before)
        raise
    return run


@frozen
class Preview:
    """What a pipeline run would be: the jobs of its steps, by name, and the volume between them."""

    name: str
    steps: Mapping[str, Prepared]
    volume: RunVolume | None = None


def preview_notebook(request: Request, engine: Engine, tell: Tell) -> Preview:
    """What `run_notebook` would submit; nothing is made that stays."""
    pipeline = read(request.notebook, request.parameters, request.options)
    name, choice = _checked(request, pipeline, engine, request.options, tell)
    root = request.root
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


def _to_run(request: Request, pipeline: Pipeline, record: PipelineRecord, again: str) -> list[str]:
    """The steps that run again, in their order."""
    step_named(pipeline, again)
    done = {each for each, step in record.steps.items() if step.state in DONE}
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
    return [step.name for step in pipeline.steps if step.name in todo]
