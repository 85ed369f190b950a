"""`echelon queue`."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

import click

from echelon.cli.options import target_of, target_options
from echelon.cli.printing.say import say
from echelon.cli.printing.words import duration

if TYPE_CHECKING:
    from echelon.model.queue import HoldingRun, Place

_DAY = 86400.0


@click.command("queue", short_help="Show the queue: positions, reasons, when runs could start.")
@target_options
def queue(**target: str | None) -> int:
    """Show the runs that wait to be admitted: in which order, why, and when each could start; and which runs
    hold GPUs.

    Runs go by priority (`run --priority`), then by age. Those without a position wait for the cluster's
    scheduler (detached runs) or for Kueue. The time is known where the runs ahead have a time
    limit (`run --timeout`), and supposes that they use all of it. Nothing is changed.

    \b
    Examples:
      echelon queue
      echelon queue --on k8s -o json
    """
    from echelon.cli.printing import render
    from echelon.preparation.sources import engine_at
    from echelon.queueing.looking import look, standing

    now = time.time()
    snapshot = look(engine_at(target_of(target)))
    found = standing(snapshot, now)
    format_ = target["format"] or "text"
    if format_ != "text":
        render.data({"runs": found, "holding": snapshot.holding}, format_)
        return 0
    if found:
        heads = ("POSITION", "RUN", "PRIORITY", "GPUS", "WAITED", "COULD START", "USER", "REASON")
        render.table(heads, [_row(each, now) for each in found])
    else:
        say("no run is queued")
    if snapshot.holding:
        say()
        by_size = sorted(snapshot.holding, key=lambda each: (-each.gpus, each.name))
        render.table(("HELD BY", "GPUS", "ENDS BY", "USER"), [_holding_row(each, now) for each in by_size])
    return 0


def _row(place: Place, now: float) -> tuple[str, ...]:
    return (
        str(place.position or "-"),
        place.name,
        str(place.priority),
        str(place.gpus),
        duration(max(0.0, now - place.since)),
        "-" if place.earliest is None else _moment(place.earliest, now),
        place.user or "-",
        place.reason or "-",
    )


def _holding_row(run: HoldingRun, now: float) -> tuple[str, ...]:
    ends = "-" if run.ends is None else _moment(run.ends, now)
    return (run.name, str(run.gpus), ends, run.user or "-")


def _moment(at: float, now: float) -> str:
    """The time of day, with the date if it is not soon."""
    if at <= now:
        return "now"
    local = datetime.fromtimestamp(at).astimezone()
    return local.strftime("%H:%M" if at - now < _DAY else "%Y-%m-%d %H:%M")
