"""`echelon events`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from echelon.cli.options import complete_runs, find_run, target_options
from echelon.model.event import Event

if TYPE_CHECKING:
    from echelon.handle import Run


@click.command("events", short_help="Show what happened to a run, for people and for scripts.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs)
@click.option("-f", "--follow", is_flag=True, help="keep reading until the run ends")
@click.option("--no-metrics", is_flag=True, help="with json and yaml: without what was measured")
@target_options
def events(name: str | None, follow: bool, no_metrics: bool, **target: str | None) -> int:
    """Show what happened to a run, without RUN the newest of this folder: queued, admitted, workers started
    and lost, restarts, the end. `echelon resume` begins anew: what happened before it is not kept.

    As json it is one object to a line, with metrics among the events (kind "metric"). Reading changes
    nothing of the run.

    \b
    Examples:
      echelon events RUN
      echelon events RUN -f -o json
      echelon events RUN -f -o json --no-metrics
    """
    from echelon.cli.printing.say import say

    run = find_run(name, target)
    format_ = target["format"] or "text"
    if format_ == "text":
        _tell_resumed(run)
    for item in run.observe(follow=follow, metrics=format_ != "text" and not no_metrics):
        if format_ != "text":
            sys.stdout.write(_encoded(_as_data(item), format_))
        elif isinstance(item, Event):
            say(_line(item))
        if follow:
            sys.stdout.flush()
    sys.stdout.flush()
    return 0


def _tell_resumed(run: Run) -> None:
    """Say that the beginning is not the run's own."""
    from contextlib import suppress

    from echelon.cli.printing import render
    from echelon.errors import EchelonError

    with suppress(EchelonError):  # its job cannot be read; its events may
        if run.job().earlier:
            render.notice(f"run {run.name} was resumed: this is what happened since")


def _as_data(item: object) -> dict[str, Any]:
    """The fields that an event has; those of its kind alone."""
    import msgspec

    from echelon.cli.printing.metric_rows import as_data
    from echelon.model.output.metric import Metric

    if isinstance(item, Metric):
        found = as_data(item)
        found = {"kind": "metric", "at": found.pop("time"), **found}
    else:
        found = msgspec.to_builtins(item)
    return {key: value for key, value in found.items() if value is not None}


def _encoded(data: dict[str, Any], format_: str) -> str:
    from echelon.cli.printing.data_text import json_text, yaml_text

    return json_text(data) + "\n" if format_ == "json" else yaml_text([data])


def _line(event: Event) -> str:
    from echelon.cli.printing.words import checkpoint_event, one_line, resized_event

    clock = time.strftime("%H:%M:%S", time.localtime(event.at))
    text = one_line(checkpoint_event(event) or resized_event(event)) or _text(event)
    return f"{clock}  {event.kind:<14}  {text}".rstrip()


def _text(event: Event) -> str:
    """Whom an event is about, and why it happened."""
    from echelon.cli.printing.words import one_line

    about = [
        f"{name} {value}"
        for name, value in (("worker", event.worker), ("rank", event.rank), ("node", event.node))
        if value is not None
    ]
    about += [f"restart {event.restart}"] if event.kind == "restarting" else []
    ended = (
        event.outcome or event.signal or (None if event.exit_code is None else f"exit code {event.exit_code}")
    )
    about += [ended] if ended else []
    about += [f"{step.name} {step.state}" for step in event.steps or ()]
    reason = event.reason or (event.cause.summary if event.cause is not None else "")
    if event.steps is not None:
        fetched = f"their files are in {event.fetched_to}" if event.fetched_to else ""
        reason = "; ".join(filter(None, (*(step.reason for step in event.steps), fetched)))
    return ": ".join(
        filter(None, (", ".join(about), one_line(reason.removeprefix(f"worker {event.worker}: "))))
    )
