"""`echelon notebook run --dry-run`: what would be submitted for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from echelon.admission import find_plan
from echelon.cli.printing import render
from echelon.cli.printing.say import say, style

if TYPE_CHECKING:
    from echelon.engines.base import Engine
    from echelon.notebook.execution.running import Preview


def show_preview(preview: Preview, engine: Engine, format_: str) -> None:
    """Each step after the other, as `run --dry-run` shows a run; as YAML, all objects in one stream."""
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
