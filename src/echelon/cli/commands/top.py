"""`echelon top`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from echelon.cli.options import complete_runs, find_run, target_of, target_options

if TYPE_CHECKING:
    from echelon.handle import Run

_EVERY = 1.7  # seconds between two looks


@click.command("top", short_help="Show devices and which runs use them, live; or the workers of a run.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs)
@click.option("--once", is_flag=True, help="show it once; this is also what a pipe gets")
@target_options
def top(name: str | None, once: bool, **target: str | None) -> int:
    """Show GPUs, CPUs and memory, and which run uses them, live until Ctrl-C.

    On this machine it is what processes use; on Kubernetes, by node, what pods have asked for.

    With RUN, show its workers and ranks, until it ends: how each stands, its node, and what it uses of CPU
    (100% is one core), memory and GPUs, as its agents measure it every few seconds. Of a notebook's run it
    is the step that runs.

    \b
    Examples:
      echelon top
      echelon top -o json
      echelon top --on k8s
      echelon top RUN
      echelon top RUN -o json
    """
    from echelon.cli.printing.screen import is_possible

    live = not once and (target["format"] or "text") == "text" and is_possible()
    if name is not None:
        _show_run(name, target, live=live)
    else:
        _show_place(target, live=live)
    return 0


def _show_run(name: str, target: Mapping[str, str | None], *, live: bool) -> None:
    from echelon.cli.printing.render_usage import run_usage
    from echelon.cli.printing.screen import Screen

    run, format_ = _with_workers(find_run(name, target)), target["format"] or "text"
    if not live:
        run_usage(run.usage(), format_)
        return
    with run.live_usage() as usage:
        with Screen() as screen:
            ended = False
            while not ended:
                ended = usage.ended.wait(_EVERY)
                if usage.trouble is not None:
                    raise usage.trouble
                screen.draw(lambda: run_usage(usage.now(), format_))
        run_usage(usage.now(), format_)  # how it ended stays to be seen


def _with_workers(run: Run) -> Run:
    """The run itself; of one that is made of runs, its active step, if there is one."""
    from echelon.errors import InvalidJob
    from echelon.model.status import FINAL

    steps = run.steps() if run.has_steps else {}
    going = [step for step in steps if steps[step].status(progress=False).state not in FINAL]
    if len(going) > 1:
        hint = f"name one: {', '.join(f'{run.name}/{step}' for step in going)}"
        raise InvalidJob("run", run.name, "has several active steps", hint=hint)
    return steps[going[0]] if going else run


def _show_place(target: Mapping[str, str | None], *, live: bool) -> None:
    from echelon.cli.printing import render
    from echelon.cli.printing.render_cluster import cluster_usage
    from echelon.cli.printing.render_usage import machine_usage
    from echelon.engines.abilities import required
    from echelon.model.engine.usage import ClusterUsage, MachineUsage
    from echelon.preparation.sources import engine_at

    engine = engine_at(target_of(target))
    meter = required(engine.usage, "usage to show", engine.traits)
    format_ = target["format"] or "text"

    def show(found: MachineUsage | ClusterUsage) -> None:
        if isinstance(found, MachineUsage):
            machine_usage(found, format_)
        else:
            cluster_usage(found, format_)

    render.repeatedly(meter.measure, show, every=_EVERY if live else None)
