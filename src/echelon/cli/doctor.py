"""`echelon doctor`."""

from __future__ import annotations

import os

import click

from echelon.cli.options import target_options, where

_PATIENCE = 2.0  # seconds for a cluster that does not answer: that is what we are here to say


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
    from echelon.cli import render
    from echelon.engines.choose import choose_engine
    from echelon.engines.local.engine import LocalEngine

    place = where(target)
    engine = choose_engine(place["on"], context=place["context"], namespace=place["namespace"])
    if isinstance(engine, LocalEngine):
        from echelon.engines.local.checkup import check_up
        from echelon.submit import find_python

        found = check_up(find_python(os.environ))
    else:
        from echelon.engines.kubernetes.client.api import Api
        from echelon.engines.kubernetes.doctor import check_up as check_cluster
        from echelon.engines.kubernetes.engine import KubernetesEngine

        assert isinstance(engine, KubernetesEngine)
        found = check_cluster(lambda: Api(engine.api.access, patience=_PATIENCE), image)
    findings = render.findings(found, target["format"] or "text")
    return int(any(each.level == "missing" for each in findings))
