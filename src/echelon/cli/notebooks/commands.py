"""`echelon notebook`: run, show, graph, tag; `compile` has its own module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from echelon.cli.help import Group, SectionedCommand, renamed
from echelon.cli.notebooks.compiling import compile_notebook, pairs
from echelon.cli.notebooks.server import jupyter
from echelon.cli.options import place_of, step_options, target_of, target_options
from echelon.cli.printing.say import say, style
from echelon.cli.printing.words import one_line
from echelon.model.former import FORMER
from echelon.model.settings import OF_STEPS, ON_KUBERNETES, Settings

if TYPE_CHECKING:
    from echelon.engines.base import Engine
    from echelon.handle import Run
    from echelon.model.status import Status
    from echelon.notebook.analysis.cells import Cell, Notebook
    from echelon.notebook.execution.running import Preview
    from echelon.notebook.kept.folder import PipelineRecord

_NOTEBOOK = click.argument("notebook", metavar="FILE", type=click.Path(path_type=Path))
_GROUPS = (
    Group("What to run", ("params", "name"), ("python", "secret", "include")),
    Group("Again", ("start", "only", "cache")),
    Group("Where and when", ("on", "parallel", "detach", "dry_run"), ("no_gpus",)),
    Group("Results and output", ("results",), ("format",)),
    Group("Failures", ("restarts", "timeout")),
    Group(ON_KUBERNETES, ("image", "namespace", "volume", "mount", "env"), ("volume_mode", "context")),
)


@click.group("notebook", short_help="Run a notebook's tagged cells as a pipeline.")
def notebook() -> None:
    """Run a notebook's tagged cells as a pipeline: each step in a process of its own, with the variables that
    it needs, in parallel where the graph allows.

    Tags are those of Kale: imports, functions, pipeline-parameters, step:NAME, prev:NAME, limit:cpu:2, ...;
    distribute:torch or distribute:MultiWorkerMirroredStrategy with workers:N trains a step on N workers.

    \b
    Examples:
      echelon notebook run train.ipynb --param lr=0.01
      echelon notebook graph train.ipynb
      echelon notebook tag train.ipynb 4 step:train prev:load
      echelon notebook compile --to tekton train.ipynb --image python:3.12 --into tekton
    """


notebook.add_command(compile_notebook)
for _name, _command in jupyter.commands.items():
    notebook.add_command(renamed(_command, f"notebook {_name}", f"jupyter {_name}"))


@notebook.command(
    "run",
    cls=SectionedCommand,
    groups=_GROUPS,
    params=step_options(),
    short_help="Run a notebook, step by step.",
)
@_NOTEBOOK
@click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, help="a value for a pipeline parameter"
)
@click.option(
    "--name", metavar="NAME", help="the pipeline's name (default: the notebook's); runs are NAME-1, ..."
)
@click.option("--from", "start", metavar="STEP", help="continue the newest run from this step")
@click.option("--only", metavar="STEP", help="run this step again, alone, in the newest run")
@click.option(
    "--cache", is_flag=True, help="take steps whose code and inputs have not changed from earlier runs"
)
@click.option(
    "--restarts",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    help="start a step again after a failure, up to N times",
)
@click.option(
    "--parallel", metavar="N", type=click.IntRange(min=1), help="workers at the same time (default: cores)"
)
@click.option(
    "--no-gpus",
    is_flag=True,
    help="without the GPUs that tags ask for: to try a notebook where there are none",
)
@click.option(
    "--python",
    metavar="FILE",
    help="the Python that runs the steps (default: the active environment's; in pods, the image's)",
)
@click.option(
    "--results",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="the folder of the run's own folder",
)
@click.option("-d", "--detach", is_flag=True, help="do not follow it; prints the run's name")
@click.option(
    "--timeout", metavar="TIME", help="end the whole after 30m, 12h, ...; its state is timed-out then"
)
@click.option("--dry-run", is_flag=True, help="show what would be submitted, do nothing")
@click.option(
    "--volume",
    metavar="VOLUME",
    help="in a cluster, what values and files go through: pvc:NAME[/path], or new:[SIZE][@CLASS] for one "
    "made for the run (default: new:10Gi)",
)
@click.option(
    "--volume-mode",
    type=click.Choice(["rwx", "rwo"]),
    help="of a new volume: for pods of many nodes (rwx), or of one (rwo); default: rwx where a class is "
    "known to have it",
)
@target_options
def run(notebook: Path, params: tuple[str, ...], **options: Any) -> int:
    """Run a notebook. It is a run as any other, NAME-1, and every step one of its own, NAME-1/STEP: logs,
    status, stop, wait, metrics, get and rm take both. It continues when the terminal is closed. Results, the
    working folder and the executed notebook are in runs/NAME-1. With --on k8s each step is a pod, or several.

    \b
    Examples:
      echelon notebook run train.ipynb --param lr=0.01 --param epochs=3
      echelon notebook run train.ipynb --from train
      echelon notebook run train.ipynb --only evaluate
      echelon notebook run train.ipynb --cache -o json
      echelon notebook run -d train.ipynb && echelon wait train-1
      echelon notebook run train.ipynb --on k8s --image IMAGE --volume new:10Gi@CLASS
    """
    from echelon.cli.following import follow
    from echelon.cli.printing import render
    from echelon.model.resources import parse_duration
    from echelon.notebook.execution.running import Request, preview_notebook, run_notebook
    from echelon.notebook.kept.folder import PipelineOptions
    from echelon.preparation.sources import engine_at, find_surroundings, where_to_look

    if options["start"] and options["only"]:
        raise click.UsageError("--from and --only cannot go together.")
    target = where_to_look(target_of(options), find_surroundings())
    request = Request(
        notebook=notebook,
        parameters=pairs(params),
        name=options["name"],
        start=options["start"],
        only=options["only"],
        root=options["results"],
        timeout=parse_duration("timeout", options["timeout"]) if options["timeout"] else None,
        options=PipelineOptions(
            settings=_step_settings(options),
            cache=options["cache"],
            parallel=options["parallel"],
            no_gpus=options["no_gpus"],
            image=options["image"],
            volume=options["volume"],
            volume_mode=options["volume_mode"],
        ),
    )
    format_, engine = options["format"] or "text", engine_at(target)

    def tell(text: str) -> None:
        render.notice(one_line(text))

    if options["dry_run"]:
        _show_preview(preview_notebook(request, engine, tell), engine, format_)
        return 0
    started = run_notebook(request, engine, tell)
    if engine.traits.remote:
        other = "`echelon notebook compile` makes one that does not"
        tell(f"{started.name} needs this machine to stay on; {other}")
    if options["detach"]:
        render.submitted(started, format_)
        return 0
    code = follow.follow(started, started.job(), format_, as_data=_as_data)
    if format_ == "text":
        _tell_made(started, place_of(options))
    return code


@notebook.command("show", short_help="List cells with their tags and steps.")
@_NOTEBOOK
@target_options
def show(notebook: Path, **options: Any) -> int:
    """List a notebook's code cells: the number that `tag` takes, the tags, the first line; of a cell that
    belongs to a step by those before it, the step. Problems are listed after them.

    \b
    Examples:
      echelon notebook show train.ipynb
    """
    from echelon.cli.printing import render
    from echelon.notebook.analysis.cells import read_notebook

    found = read_notebook(notebook)
    steps = _steps_of(found)
    rows = [_cell_row(cell, steps.get(cell.number, ())) for cell in found.cells]
    if (options["format"] or "text") != "text":
        render.data(rows, options["format"])
        return 0
    labels = [" ".join(row["tags"]) or _joined(row["steps"]) for row in rows]
    width = max(map(len, labels), default=0)
    for row, tags in zip(rows, labels, strict=True):
        colour = "cyan" if row["tags"] else "bright_black"
        say(f"{row['cell']:>4}  {style(tags.ljust(width), fg=colour)}  {row['line'][:70]}")
    _tell_problems(found)
    return 0


@notebook.command("graph", short_help="Draw the steps and the variables between them.")
@_NOTEBOOK
@click.option(
    "--as", "kind", type=click.Choice(["text", "svg", "mermaid"]), default="text", show_default=True
)
@target_options
def graph(notebook: Path, kind: str, **options: Any) -> int:
    """Draw a notebook's steps and the variables between them. What can never work is refused, with the cell.

    \b
    Examples:
      echelon notebook graph train.ipynb
      echelon notebook graph train.ipynb --as svg > train.svg
      echelon notebook graph train.ipynb --as mermaid
    """
    from echelon.cli.printing import render
    from echelon.notebook import picture
    from echelon.notebook.analysis.pipeline import read_pipeline
    from echelon.notebook.picture import graph_of

    pipeline = read_pipeline(notebook)
    for text in pipeline.warnings:
        render.notice(text)
    if (options["format"] or "text") != "text":
        steps = [
            {
                "step": step.name,
                "cells": [code.cell for code in step.cells],
                "after": step.after,
                "inputs": step.flow.inputs,
                "outputs": step.flow.outputs,
                "workers": step.size.workers,
            }
            for step in pipeline.steps
        ]
        render.data(steps, options["format"])
    elif kind == "text":
        for line in picture.as_text(graph_of(pipeline)):
            say(line)
    else:
        draw = picture.as_svg if kind == "svg" else picture.as_mermaid
        click.echo(draw(graph_of(pipeline)), nl=False)
    return 0


@notebook.command("tag", short_help="Give a cell tags.")
@_NOTEBOOK
@click.argument("cell", type=click.IntRange(min=1))
@click.argument("tags", nargs=-1)
@click.option("--remove", metavar="TAG", multiple=True, help="take this tag away")
@target_options
def tag(notebook: Path, cell: int, tags: tuple[str, ...], remove: tuple[str, ...], **options: Any) -> int:
    """Give a cell tags, for those whose editor cannot. CELL is its number, as `show` prints it. Where that
    gives a step another name, the steps that come after it follow.

    \b
    Examples:
      echelon notebook tag train.ipynb 4 step:train prev:load
      echelon notebook tag train.ipynb 4 --remove gpus:1
      echelon notebook tag train.ipynb 4 --remove step:old step:new
    """
    from echelon.cli.printing import render
    from echelon.notebook.analysis.cells import Tags, write_tags
    from echelon.notebook.analysis.tags import followed, read_tag_list

    if not tags and not remove:
        raise click.UsageError("Give tags, such as step:train, or --remove TAG.")
    known = read_tag_list(tags, f"cell {cell}")
    for text in known.unknown:
        render.notice(f"the tag {text!r} means nothing to echelon")

    def change(cells: Tags) -> Tags:
        kept = [each for each in cells[cell] if each not in remove]
        return followed(cells, cell, dict.fromkeys([*kept, *tags]))

    changed = write_tags(notebook, cell, change)
    others = {number: now for number, now in sorted(changed.items()) if number != cell}
    if (options["format"] or "text") == "text":
        for number, now in {cell: changed[cell], **others}.items():
            say(f"cell {number}: {' '.join(now) or 'no tags'}")
    else:
        more = {"others": [{"cell": number, "tags": now} for number, now in others.items()]} if others else {}
        render.data({"cell": cell, "tags": changed[cell], **more}, options["format"])
    return 0


def _step_settings(options: Mapping[str, Any]) -> Settings:
    """What flags and [tool.echelon] say of all steps."""
    from echelon.jobfile import settings_from
    from echelon.preparation.sources import find_surroundings, gather

    given = {name: options[name] for name in (*OF_STEPS, *FORMER) if options.get(name) not in (None, ())}
    found = gather(settings_from(given, source="the command line"), find_surroundings())
    settings = {name: getattr(found, name) for name in OF_STEPS}
    return Settings(**settings, python=options["python"], restarts=options["restarts"] or None)


def _cell_row(cell: Cell, steps: Sequence[str]) -> dict[str, Any]:
    first = next((line.strip() for line in cell.text.splitlines() if line.strip()), "")
    return {"cell": cell.number, "tags": list(cell.tags), "steps": list(steps), "line": first}


def _steps_of(found: Notebook) -> dict[int, list[str]]:
    """The steps that each cell belongs to; of a notebook that cannot run as it is, none."""
    from echelon.notebook.analysis.cells import InvalidNotebook
    from echelon.notebook.analysis.steps import gather_steps

    steps: dict[int, list[str]] = {}
    try:
        for step in gather_steps(found).steps:
            for code in step.cells:
                steps.setdefault(code.cell, []).append(step.name)
    except InvalidNotebook:
        return {}
    return steps


def _tell_problems(found: Notebook) -> None:
    """All that keeps a tagged notebook from running."""
    from echelon.cli.printing import render
    from echelon.notebook.analysis.cells import InvalidNotebook
    from echelon.notebook.analysis.pipeline import pipeline_of

    if not any(cell.tags for cell in found.cells):
        return
    try:
        pipeline_of(found)
    except InvalidNotebook as error:
        for each in (error, *error.others):
            render.notice(one_line(each.message))
            if each.hint:
                say(f"  hint: {one_line(each.hint)}", err=True)


def _joined(steps: Sequence[str]) -> str:
    """What stands for the tags of a cell without any."""
    return f"(step {' and '.join(steps)})" if steps else ""


def _tell_made(run: Run, place: str) -> None:
    """What the notebook has computed, and what was made for it."""
    from echelon.cli.printing import render

    record = _record_of(run.status(progress=False))
    if record is None:
        return
    for step in record.steps.values():
        for name, value in step.metrics.items():
            say(f"{name}: {value}")
    if (volume := record.volume) is not None:
        remove = f", made for it; `echelon rm {record.name}{place}` removes both" if volume.made else ""
        render.notice(f"its variables and files are on {volume}{remove}")


def _record_of(status: Status) -> PipelineRecord | None:
    """What its executor has written down; None if that is gone by now."""
    from echelon.errors import EchelonError
    from echelon.notebook.kept.folder import PipelineFolder, read_record

    try:
        return read_record(PipelineFolder(Path(status.results or "")))
    except EchelonError:
        return None


def _as_data(status: Status) -> dict[str, Any]:
    import msgspec

    made = {"name": status.name, "state": status.state, "reason": status.reason, "results": status.results}
    record = _record_of(status)
    if record is None:
        return made
    found = msgspec.to_builtins(record)
    assert isinstance(found, dict)
    del found["options"], found["todo"]  # they may hold variables, and are the executor's own
    for step in found["steps"].values():
        del step["files"]
    return {**made, **found}


def _show_preview(preview: Preview, engine: Engine, format_: str) -> None:
    """Each step after the other, as `run --dry-run` shows a run; as YAML, all objects in one stream."""
    from echelon.admission import find_plan
    from echelon.cli.printing import render

    if preview.volume is not None and format_ == "text":
        volume = preview.volume
        one = "pods of one node" if volume.one_node else "pods of all nodes"
        made = "which is made for the run" if volume.made else "which exists"
        render.notice(f"variables and files go through {volume}, {made}, for {one}")
    if format_ == "json":
        jobs = {name: prepared.job for name, prepared in preview.steps.items()}
        render.data({"name": preview.name, "volume": preview.volume, "steps": jobs}, format_)
        return
    for number, (name, prepared) in enumerate(preview.steps.items()):
        if format_ == "text":
            say(style(f"step {name}", bold=True))
        elif number:
            click.echo("---")
        render.preview(prepared, find_plan(prepared.job, engine, tell=render.notice), engine, format_)
