"""`echelon notebook compile`: a notebook for Tekton, or as a plain script; and parameters as flags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from echelon.errors import InvalidJob

if TYPE_CHECKING:
    from echelon.notebook.export.files import Kind

_OF_STEPS = ("image", "namespace", "restarts")
_OF_CLAIM = ("claim", "size", "storage_class", "shared")


def pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """The names and texts of `--param NAME=VALUE`."""
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InvalidJob("param", text, "is not NAME=VALUE", hint="--param lr=0.01")
        pairs[name] = value
    return pairs


@click.command("compile", short_help="Write a notebook for Tekton, or as a plain script.")
@click.argument("notebook", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--to", "kind", type=click.Choice(["tekton", "python"]), required=True, help="what to write")
@click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, help="a value for a pipeline parameter"
)
@click.option(
    "--into",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="write files into this folder (default: all to standard output)",
)
@click.option("--image", metavar="REF", help="tekton: of steps without an image: tag")
@click.option("--namespace", metavar="NAME", help="tekton: where it is to run (default: default)")
@click.option("--claim", metavar="NAME", help="tekton: a volume that is there, instead of one for each run")
@click.option("--size", metavar="SIZE", help="tekton: of each run's volume (default: 1Gi)")
@click.option("--storage-class", metavar="NAME", help="tekton: of each run's volume")
@click.option(
    "--shared", is_flag=True, default=None, help="tekton: several nodes can mount the volume (ReadWriteMany)"
)
@click.option(
    "--restarts",
    metavar="N",
    type=click.IntRange(min=0),
    help="tekton: start a step again after a failure, up to N times",
)
def compile_notebook(
    notebook: Path, kind: Kind, params: tuple[str, ...], into: Path | None, **options: Any
) -> int:
    """Write a notebook's steps for another engine.

    tekton: a PipelineRun, whose distributed steps are Indexed Jobs, and what it needs beside it: a ConfigMap
    with the steps and, for distributed ones, a ServiceAccount that may make Jobs. Images need Python and what
    the notebook imports, not echelon.

    python: one plain script, which needs no echelon.

    \b
    Examples:
      echelon notebook compile --to tekton train.ipynb --image python:3.12 --into tekton
      kubectl apply -f tekton/train-needed.yaml && kubectl create -f tekton/train-run.yaml
      echelon notebook compile --to python train.ipynb --param lr=0.01 > train.py
    """
    from echelon.cli.printing import render
    from echelon.model.settings import Settings
    from echelon.notebook.analysis.pipeline import read_pipeline
    from echelon.notebook.export.files import compiled, write_files
    from echelon.notebook.export.tekton import RunClaim

    given = {name: options[name] for name in (*_OF_STEPS, *_OF_CLAIM) if options[name] is not None}
    if kind == "python" and given:
        raise click.UsageError(f"--{next(iter(given)).replace('_', '-')} is for --to tekton.")
    settings = Settings(**{name: options[name] for name in _OF_STEPS})
    claim = RunClaim(**{name: value for name, value in given.items() if name in _OF_CLAIM})
    made = compiled(read_pipeline(notebook, pairs(params)), kind, settings, claim)
    for note in made.notes:
        render.notice(note)
    if into is None:
        for text in made.files.values():
            click.echo(text, nl=False)
        return 0
    for path in write_files(made.files, into):
        render.notice(f"wrote {path}")
    return 0
