"""`echelon doctor`."""

from __future__ import annotations

import os

import click

from echelon.cli.options import target_of, target_options


@click.command("doctor", short_help="Check what this machine or cluster has, and what is missing.")
@click.option("--image", metavar="REF", help="on Kubernetes: try this image, in a pod that is removed again")
@click.option(
    "-n",
    "--workers",
    type=click.IntRange(1, 2),
    default=1,
    metavar="2",
    help="with --image: let two pods on two nodes exchange data, as ranks do",
)
@click.option("--role", is_flag=True, help="on Kubernetes: print a Role with the rights that you lack")
@target_options
def doctor(image: str | None, workers: int, role: bool, **target: str | None) -> int:
    """Say what this machine or cluster has, what is missing, what does not work without it, and what to do
    about it.

    Exits with 1 if something is missing without which nothing works. Nothing is changed; with --image, a
    short pod shows whether that image can be pulled, has Python, and finds others by name.

    \b
    Examples:
      echelon doctor
      echelon doctor -o json
      echelon doctor --on k8s --image my/torch
      echelon doctor --on k8s --image my/torch -n 2   an all-reduce between two nodes
      echelon doctor --on k8s --role > role.yaml      for an administrator to apply
    """
    from echelon.cli.printing import render
    from echelon.engines.abilities import required
    from echelon.preparation.prepare import find_python
    from echelon.preparation.sources import engine_at

    if workers > 1 and image is None:
        raise click.UsageError("-n 2 needs the image to try: --image REF")
    engine = engine_at(target_of(target))
    checkup = required(engine.checkup, "check-up", engine.traits)
    if role:
        render.manifests(checkup.missing_rights(), target["format"] or "yaml")
        return 0
    found = checkup.check_up(python=find_python(os.environ), image=image, workers=workers)
    findings = render.findings(found, target["format"] or "text")
    return int(any(each.level == "missing" for each in findings))
