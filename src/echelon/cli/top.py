"""`echelon top`."""

from __future__ import annotations

import sys

import click

from echelon.cli.options import target_of, target_options


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
    from echelon.api import engine_at
    from echelon.cli import render
    from echelon.cli.render_cluster import cluster_usage
    from echelon.cli.render_machine import machine_usage
    from echelon.engines.abilities import required
    from echelon.model.usage import ClusterUsage, MachineUsage

    engine = engine_at(target_of(target))
    meter = required(engine.usage, "usage to show", engine.traits)
    format_ = target["format"] or "text"
    live = not once and format_ == "text" and sys.stdout.isatty()

    def show(found: MachineUsage | ClusterUsage) -> None:
        if isinstance(found, MachineUsage):
            machine_usage(found, format_)
        else:
            cluster_usage(found, format_)

    render.repeatedly(meter.measure, show, every=1.7 if live else None)
    return 0
