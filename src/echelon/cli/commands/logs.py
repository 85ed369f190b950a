"""`echelon logs`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from echelon.cli.options import RAW_HELP, complete_runs, find_run, target_options
from echelon.model.output.log import is_gap

if TYPE_CHECKING:
    from echelon.cli.following.lines import DataPrinter, LinePrinter
    from echelon.cli.following.worker_lines import WorkerLines
    from echelon.handle import Run
    from echelon.model.output.log import LogLine
    from echelon.model.status import Status


@click.command("logs", short_help="Show what the ranks wrote.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs)
@click.option("-f", "--follow", is_flag=True, help="go on until the run ends")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="only this rank")
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="only this worker's ranks")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="only the last N lines")
@click.option("--since", metavar="TIME", help="only what was written in the last 30s, 5m, 2h, ...")
@click.option("--timestamps", is_flag=True, help="with the time of each line")
@click.option("--raw", is_flag=True, help=RAW_HELP)
@target_options
def logs(
    name: str | None,
    follow: bool,
    rank: int | None,
    worker: int | None,
    tail: int | None,
    since: str | None,
    timestamps: bool,
    raw: bool,
    **target: str | None,
) -> int:
    """Show what the ranks wrote, each line with its rank; without RUN, of the newest run of this folder. Of a
    notebook's pipeline, one step after the other; with -f, each line with its step. Of a run that was
    resumed, in all of its starts; without -f, restarts are told between the lines.

    With -f on a terminal, a line for each worker stands below the output: its state, how far its training has
    come, and the newest metrics.

    \b
    Examples:
      echelon logs RUN --rank 1 --tail 50
      echelon logs -f RUN --since 5m
      echelon logs -f
    """
    from echelon.cli.following.follow import report_waiting
    from echelon.cli.following.lines import DataPrinter, LinePrinter
    from echelon.cli.printing import render
    from echelon.model.resources import parse_duration

    runs = [find_run(name, target)]
    format_ = target["format"] or "text"
    start = time.time() - parse_duration("since", since) if since else None
    for run in runs:
        if len(runs) > 1 and format_ == "text":
            render.notice(f"run {run.name}")
        lines = run.logs(rank=rank, worker=worker, follow=follow, tail=tail, since=start)
        printer: DataPrinter | LinePrinter
        workers: WorkerLines | None = None
        if format_ == "text":
            status = run.status(progress=False)
            workers = _worker_lines(run, status) if follow and not raw else None
            ranks = [rank for each in status.workers for rank in each.ranks]
            printer = LinePrinter(
                prefix=len(ranks) != 1, timestamps=timestamps, at_once=follow, raw=raw, workers=workers
            )
        else:
            printer = DataPrinter(format_, at_once=follow)
        if follow:
            report_waiting(run, workers)
        with workers or contextlib.nullcontext():
            _print(run, lines, printer, follow=follow)
    return 0


def _worker_lines(run: Run, status: Status) -> WorkerLines | None:
    """Lines for the workers of a run that goes on, if they can stand below its output."""
    from echelon.cli.following.bottom import are_possible
    from echelon.model.status import FINAL

    if status.state in FINAL or status.state == "damaged" or not are_possible():
        return None
    from echelon.cli.following.worker_lines import WorkerLines

    return WorkerLines(run, run.job().metric_patterns)


def _print(run: Run, lines: Iterable[LogLine], printer: DataPrinter | LinePrinter, *, follow: bool) -> None:
    """Print lines; where the run was restarted or resumed between two of them, that is told."""
    from echelon.cli.following.lines import DataPrinter
    from echelon.cli.printing import render
    from echelon.cli.printing.words import near, one_line
    from echelon.engines.results import is_streamed

    torn = False
    starts = [] if follow or isinstance(printer, DataPrinter) else run.later_starts()
    for line in lines:
        while starts and starts[0].at <= line.at:
            sys.stdout.flush()  # it is on standard error: the lines before it come first
            render.notice(one_line(starts.pop(0).why))
        printer.show(line)
        torn = torn or is_gap(line)  # it stands for others, which the cluster no longer has
    printer.finish()
    folder = Path(run.status(progress=False).results or "") if torn else None
    if folder is not None and (folder / "logs").is_dir() and not is_streamed(folder):
        render.notice(f"all output is in {near(str(folder))}/logs")
