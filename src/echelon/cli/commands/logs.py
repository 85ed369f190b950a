"""`echelon logs`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from echelon.cli.options import RAW_HELP, complete_runs, find_run, target_options
from echelon.model.output.log import is_gap

if TYPE_CHECKING:
    from echelon.cli.following.bottom import PaintedLines
    from echelon.cli.following.lines import DataPrinter, LinePrinter
    from echelon.handle import Run
    from echelon.model.output.log import LogLine
    from echelon.model.status import Status
    from echelon.observation.standing import Start

_MOST_MISSING = 8  # of them are named


@click.command("logs", short_help="Show what the ranks wrote.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs)
@click.option("-f", "--follow", is_flag=True, help="keep reading until the run ends")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="only this rank")
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="only this worker's ranks")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="only the last N lines of the whole")
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
    notebook's pipeline each line has its step, and its rank if that is not 0: one step after the other, or,
    with -f or --tail, in the order of time. Of a run that was resumed, in all of its starts; without -f,
    restarts are shown between the lines.

    With -f on a terminal, a line for each worker, or for each active step, stands below the output: its
    state, how far its training has come, and the newest metrics.

    \b
    Examples:
      echelon logs RUN --rank 1 --tail 50
      echelon logs RUN/STEP
      echelon logs -f RUN --since 5m
      echelon logs -f
    """
    from echelon.cli.following.follow import report_waiting
    from echelon.cli.following.lines import DataPrinter
    from echelon.cli.printing import render
    from echelon.model.resources import parse_duration

    run = find_run(name, target)
    format_ = target["format"] or "text"
    start = time.time() - parse_duration("since", since) if since else None
    lines = run.logs(rank=rank, worker=worker, follow=follow, tail=tail, since=start)
    below: PaintedLines | None = None
    printer: DataPrinter | LinePrinter
    status = run.status(progress=False) if format_ == "text" else None
    if status is not None:
        printer, below = _on_screen(run, status, follow=follow, timestamps=timestamps, raw=raw)
    else:
        printer = DataPrinter(format_, at_once=follow)
    if follow:
        report_waiting(run, below)
    elif tail is None and format_ == "text":
        lines = _with_steps(lines, render.notice)
    with below or contextlib.nullcontext():
        _print(run, lines, printer, follow=follow)
    if status is not None and not run.has_steps:
        _tell_missing(run, status, follow=follow)
    return 0


def _tell_missing(run: Run, status: Status, *, follow: bool) -> None:
    """Say which lines a full disk, or a lost pod, has cost."""
    from echelon.cli.printing import render
    from echelon.cli.printing.words import one_line
    from echelon.errors import EchelonError

    with contextlib.suppress(EchelonError):  # it was removed meanwhile, or cannot be asked any more
        found = run.status(progress=False) if follow else status
        for text in found.missing[:_MOST_MISSING]:
            render.notice(one_line(text))


def _on_screen(
    run: Run, status: Status, *, follow: bool, timestamps: bool, raw: bool
) -> tuple[LinePrinter, PaintedLines | None]:
    """What prints the lines for a person, and what stands below those of an active run, if it can."""
    from echelon.cli.following.bottom import are_possible
    from echelon.cli.following.follow import lines_below
    from echelon.cli.following.lines import LinePrinter, PartPrinter, StepColours
    from echelon.model.status import FINAL

    below: PaintedLines | None = None
    colours = StepColours()
    if follow and not raw and status.state not in (*FINAL, "damaged") and are_possible():
        below = lines_below(run, run.job(), colours)
    how: dict[str, Any] = {"timestamps": timestamps, "at_once": follow, "raw": raw, "below": below}
    if run.has_steps:
        return PartPrinter(colours, **how), below
    ranks = [rank for each in status.workers for rank in each.ranks]
    return LinePrinter(prefix=len(ranks) != 1, **how), below


def _with_steps(lines: Iterable[LogLine], tell: Callable[[str], object]) -> Iterator[LogLine]:
    """The same lines; before those of each step, its name."""
    part = ""
    for line in lines:
        if line.part != part:
            part = line.part
            sys.stdout.flush()  # the lines before it come first
            tell(f"step {part}" if part else "its executor")
        yield line


def _print(run: Run, lines: Iterable[LogLine], printer: DataPrinter | LinePrinter, *, follow: bool) -> None:
    """Print lines; where the run was restarted or resumed between two of them, a notice says so."""
    from echelon.cli.following.lines import DataPrinter
    from echelon.cli.printing import render
    from echelon.cli.printing.words import near, one_line
    from echelon.engines.results import is_streamed

    torn = False
    starts = [] if follow or isinstance(printer, DataPrinter) else run.later_starts()
    for line in lines:
        while starts and (due := _before(line, starts)) is not None:
            starts.remove(due)
            sys.stdout.flush()  # it is on standard error: the lines before it come first
            render.notice(one_line(f"step {due.part}: {due.why}" if due.part else due.why))
        printer.show(line)
        torn = torn or is_gap(line)  # it stands for others, which the cluster no longer has
    printer.finish()
    torn = torn and not run.has_steps
    folder = Path(run.status(progress=False).results or "") if torn else None
    if folder is not None and (folder / "logs").is_dir() and not is_streamed(folder):
        render.notice(f"all output is in {near(str(folder))}/logs")


def _before(line: LogLine, starts: Sequence[Start]) -> Start | None:
    """The first start, of the run or of the same step of it, that came before a line."""
    return next((start for start in starts if start.part == line.part and start.at <= line.at), None)
