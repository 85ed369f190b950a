"""`echelon top`."""

from __future__ import annotations

import sys

import click

from echelon.cli.options import target_options, where


@click.command("top", short_help="Show devices and who uses them, live.")
@click.option("--once", is_flag=True, help="show it once; this is also what a pipe gets")
@target_options
def top(once: bool, **target: str | None) -> int:
    """Show GPUs, CPUs and memory, and which run uses them, live until Ctrl-C.

    On this machine it is what processes use; on Kubernetes, by node, what pods have asked for.

    \b
    Examples:
      echelon top
      echelon top -o json
      echelon top --on k8s
    """
    from echelon.cli import render
    from echelon.engines.choose import choose_engine
    from echelon.engines.local.engine import LocalEngine

    place = where(target)
    engine = choose_engine(place["on"], context=place["context"], namespace=place["namespace"])
    format_ = target["format"] or "text"
    live = not once and format_ == "text" and sys.stdout.isatty()
    every = 1.7 if live else None
    if isinstance(engine, LocalEngine):
        from echelon.cli.render_machine import machine_usage
        from echelon.engines.local import usage

        render.repeatedly(
            lambda: usage.measure_usage(engine), lambda found: machine_usage(found, format_), every=every
        )
    else:
        from echelon.cli.render_cluster import cluster_usage
        from echelon.engines.kubernetes.engine import KubernetesEngine
        from echelon.engines.kubernetes.nodes.usage import measure_usage

        assert isinstance(engine, KubernetesEngine)
        render.repeatedly(
            lambda: measure_usage(engine.api), lambda found: cluster_usage(found, format_), every=every
        )
    return 0
