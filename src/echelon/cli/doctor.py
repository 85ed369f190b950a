"""`echelon doctor`."""

from __future__ import annotations

import os

import click

from echelon.cli.options import target_of, target_options


@click.command("doctor", short_help="Say what this machine has, and what is missing for what.")
@click.option("--image", metavar="REF", help="on Kubernetes: try this image, in a pod that is removed again")
@target_options
def doctor(image: str | None, **target: str | None) -> int:
    """Say what this machine or cluster has, what is missing, what does not work without it, and what to do
    about it.

    Exits with 1 if something is missing without which nothing works. Nothing is changed; with --image, a
    short pod shows whether that image can be pulled, has Python, and finds others by name.

    \b
    Examples:
      echelon doctor
      echelon doctor -o json
      echelon doctor --on k8s --image my/torch
    """
    from echelon.api import engine_at
    from echelon.cli import render
    from echelon.engines.abilities import required
    from echelon.prepare import find_python

    engine = engine_at(target_of(target))
    checkup = required(engine.checkup, "check-up", engine.traits)
    found = checkup.check_up(python=find_python(os.environ), image=image)
    findings = render.findings(found, target["format"] or "text")
    return int(any(each.level == "missing" for each in findings))
