"""What is printed, but for the lines of ranks. Plain and stable when piped; tables and colour on a terminal.

Data goes to standard output, messages about it to standard error. What only `run` needs is imported
where it is used, so that `ps` need not load it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from echelon.cli.printing.say import coloured, say, shown, style
from echelon.cli.printing.words import cause_lines, duration, near, one_line, state, step_ended

if TYPE_CHECKING:
    from echelon.cli.printing.recent import Recent
    from echelon.engines.base import Engine
    from echelon.errors import EchelonError
    from echelon.handle import Run
    from echelon.model.copy import LeftOut
    from echelon.model.engine.finding import Finding
    from echelon.model.job import Job
    from echelon.model.status import RunSummary, Status
    from echelon.preparation.prepare import Prepared

_RUN_HEADS = ("NAME", "STATE", "WORKERS", "GPUS", "AGE", "TOOK", "COMMAND", "REASON")
_LONGEST_WHAT = len("panel in JupyterLab")  # what a check-up is about; its lines are printed one by one
_LEVEL_COLOURS = {"ok": "green", "degraded": "yellow", "missing": "red"}
_SHORTENED = ("OWNER", "COMMAND", "REASON", "MODEL", "USED BY")  # columns that give way on a narrow terminal
_WHOLE = ("NAME", "NODE", "RUN", "STATE")  # columns that never do: the last ones leave the screen instead
_NOT_SUCCEEDED = ("failed", "timed-out", "lost", "damaged")
_LEFT_OUT = 5  # results that are named when they cannot be copied
T = TypeVar("T")


def notice(text: str) -> None:
    """Print a message about what happens."""
    say(style("echelon: ", fg="bright_black") + text, err=True)


def data(value: object, format_: str) -> None:
    """Print a value as JSON or YAML."""
    from echelon.cli.printing.data_text import json_text, yaml_text

    if format_ == "json":
        click.echo(json_text(value, indent=2))
    else:
        click.echo(yaml_text(value), nl=False)


def headline(job: Job, run: Run) -> str:
    """What is about to run."""
    from echelon.model.job import workers_asked
    from echelon.model.run import describe_command
    from echelon.model.world import rank_count, worker_count

    if job.program is not None:
        return f"run {style(run.name, bold=True)}: {one_line(describe_command(job))}"
    plan = run.plan()
    workers = workers_asked(job) if plan is None else worker_count(plan.world)
    size = f"{workers} worker{'s' * (workers != 1)}"
    if plan is None and job.shape is not None:  # how many workers share them is decided when it starts
        least, most = job.shape.least, job.shape.most
        size = f"{least if least == most else f'{least} to {most}'} GPU{'s' * (most != 1)} in all"
    if plan is not None and (ranks := rank_count(plan.world)) != workers:
        size += f", {ranks} ranks"
    return f"run {style(run.name, bold=True)}: {size}, {job.framework}"


def submitted(run: Run, format_: str) -> None:
    """A run that was left to itself."""
    if format_ == "text":
        say(run.name)
    else:
        data({"name": run.name, "uri": str(run)}, format_)


def preview(prepared: Prepared, plan: object, engine: Engine, format_: str) -> None:
    """What a submission would do; as YAML, the objects that it would make, where it makes any."""
    from echelon.admission import plan_anywhere
    from echelon.model.job import asks_for_gpus
    from echelon.model.plan import Plan

    job, objects = prepared.job, engine.traits.previews_objects
    if not isinstance(plan, Plan):
        notice(f"it would wait: {getattr(plan, 'reason', '')}")
        if not objects:
            return
        cluster = None if job.shape is None else engine.cluster(job=job)
        plan = plan_anywhere(job, cluster)  # the objects are the same, but for the nodes
    if format_ == "text":
        from echelon.placement.drawing import draw

        say(engine.preview(job, plan, prepared.bundle).rstrip("\n"))
        for line in draw(job, plan, engine.cluster(job=job)) if asks_for_gpus(job) else ():
            say(line)
    elif objects and format_ == "yaml":
        click.echo(engine.objects(job, plan, prepared.bundle), nl=False)
    else:
        data({"job": job, "plan": plan}, format_)


def collecting(run: Run) -> None:
    """Fetch the results, and report progress when it takes a while."""
    found: list[LeftOut] = []
    said: list[str] = []
    try:
        run.collect(fetching(said.append), found.append)
    finally:
        left_out(found)
    if said:
        notice("results fetched")


def fetching(also: Callable[[str], object] = lambda _: None) -> Callable[[int, int], object]:
    """What reports how far results have come, now and then; `also` gets what it has said."""
    from echelon.model.resources import format_memory

    shown = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown > 2.0:
            shown = now
            said = f"fetching results: {format_memory(done)} of {format_memory(total)}"
            notice(said)
            also(said)

    return progress


@contextlib.contextmanager
def notice_if_slow(text: str) -> Iterator[None]:
    """Report what is being done, once it takes a while."""
    timer = threading.Timer(2.0, notice, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def left_out(found: Sequence[LeftOut]) -> None:
    """Results that cannot be copied, a line each."""
    for each in found[:_LEFT_OUT]:
        notice(f"not copied: {one_line(each.path)}: {one_line(each.why)}")
    if len(found) > _LEFT_OUT:
        notice(f"not copied: {len(found) - _LEFT_OUT} more")


def final_code(code: int, trouble: EchelonError | None) -> int:
    """The exit code of a command that stayed with a run: a failure of the run's own counts more than trouble
    with its results, which a notice reports.
    """
    if trouble is None:
        return code
    if not code:
        raise trouble
    notice(str(trouble))
    return code


def ending(status: Status, recent: Recent | None = None, *, resumable: bool = False) -> None:
    """How a run in the foreground ended, and what to do if it failed; last lines that are still in sight are
    not repeated.
    """
    from echelon.engines.results import is_streamed

    took = duration((status.ended or time.time()) - status.created)
    _failed_steps(status)
    if status.state == "succeeded":
        where = status.reason or _whereabouts(status)
        notice(f"{style('succeeded', fg='green')}{_without(status)} in {took}; {where}")
        _tell_not_downloaded(status)
        return
    notice(f"{state(status.state)} after {took}: {one_line(status.reason or '')}")
    cause = status.root_cause
    if cause is not None:
        seen = recent is not None and cause.tail and recent.in_sight(cause.rank, cause.tail[-1])
        for text in cause_lines(cause, with_tail=not seen and len(ranks_of(status)) > 1):
            say(text, err=True)
    folder = Path(status.results or "")
    if status.steps:
        notice(_whereabouts(status))
    elif status.results and (folder / "logs").exists():
        what = "the output as it came, without what was missed," if is_streamed(folder) else "all output"
        notice(f"{what} is in {near(status.results)}/logs")
    if resumable and status.state in ("failed", "lost", "timed-out", "stopped"):
        how = "continues with what is not done" if status.steps else "starts it again, in the same results"
        notice(f"`echelon resume {status.name}` {how}")


def _failed_steps(status: Status) -> None:
    """The steps of a run that did not succeed, with what is known of each, and the files of steps that could
    not be brought here.
    """
    for step in status.steps:
        if step.state not in _NOT_SUCCEEDED:
            continue
        notice(style(one_line(step_ended(step)), fg="red"))
        if step.hint:
            say(f"  hint: {one_line(step.hint)}", err=True)
        if step.run:
            notice(f"`echelon logs {status.name}/{step.name}` has its output")
    for text in status.missing if status.steps else ():
        notice(style(one_line(text), fg="red"))


def outcome(status: Status, format_: str, advice: str | None = None) -> None:
    """One line on how a run ended; where its results are, and what helps if it failed, is for people only."""
    outcomes([status], format_)
    if format_ != "text":
        return
    if status.state == "succeeded":
        if status.reason is None:
            notice(_whereabouts(status))
        _tell_not_downloaded(status)
        return
    cause = status.root_cause
    for each in filter(None, (cause.hint if cause is not None else None, advice)):
        notice(one_line(each))
    if cause is not None and cause.tail:
        notice(f"`echelon status {status.name}` shows its last lines")


def _without(status: Status) -> str:
    from echelon.model.status import WITHOUT_INITIALIZERS

    return f" {WITHOUT_INITIALIZERS}" if status.not_downloaded and status.state == "succeeded" else ""


def _tell_not_downloaded(status: Status) -> None:
    """A run without its initializers may have trained on something else, or on nothing."""
    if status.not_downloaded:
        notice(f"not downloaded before it: {one_line(', '.join(status.not_downloaded))}")


def _whereabouts(status: Status) -> str:
    from echelon.engines.results import holds_results

    place = status.results or ""
    if place.startswith("pvc:"):
        return f"results on a volume: {place}"
    if place and holds_results(Path(place)):
        return f"results in {near(place)}"
    if status.fetched_to is not None:
        host, _, path = status.fetched_to.partition(":")
        return one_line(f"its results were fetched to {path} on {host}")
    return f"its results are not here; `echelon get {status.name}` brings them, or says where they are"


def outcomes(found: Sequence[Status], format_: str) -> None:
    """A line for each run, on how it ended."""
    if format_ != "text":
        data(found[0] if len(found) == 1 else list(found), format_)
        return
    for status in found:
        reason = f": {one_line(status.reason)}" if status.reason else ""
        say(f"{status.name} {state(status.state)}{_without(status)}{reason}")


def names(found: Sequence[str], format_: str) -> None:
    """Names alone, for other commands."""
    if format_ != "text":
        data(list(found), format_)
        return
    for name in found:
        say(name)


def removed(names: Sequence[str], format_: str) -> None:
    """Runs that are forgotten."""
    if format_ != "text":
        data({"removed": list(names)}, format_)
    else:
        for name in names:
            say(name)


def kept(run: str, volumes: Sequence[str]) -> None:
    """Volumes that stay after a run was forgotten."""
    for volume in volumes:
        name = volume.removeprefix("pvc:").partition("/")[0]
        notice(f"results of {run} stay on {volume}; `echelon volume rm {name}` deletes that volume")


def fetched(where: Path, seconds: float, format_: str) -> None:
    """Where results were brought to."""
    if format_ == "text":
        say(near(str(where)))
    else:
        data({"path": str(where), "seconds": round(seconds, 3)}, format_)


def runs(found: Sequence[RunSummary], format_: str, *, ended_too: bool, all_users: bool = False) -> None:
    """The table of runs; with those of all users, whose they are."""
    if format_ != "text":
        data(found, format_)
    elif found and (all_users or len({"" if row.own else _whose(row) for row in found}) > 1):
        heads = ("OWNER", *_RUN_HEADS)
        table(heads, [(_whose(row), *_run_row(row)) for row in found])
    elif found:
        table(_RUN_HEADS, map(_run_row, found))
    else:
        notice("no runs" if ended_too else "no run is active; -a shows ended runs")


def _whose(row: RunSummary) -> str:
    """The owner of a run; where a cluster has another name for the local user, both."""
    if row.user and row.user != row.owner:
        return f"{row.owner} ({row.user})"
    return row.owner or "-"


def _run_row(row: RunSummary) -> tuple[str, ...]:
    now = time.time()
    return (
        row.name,
        state(row.state),
        _size(row),
        str(row.gpus or "-"),
        duration(now - row.created),
        duration((row.ended or now) - row.created),
        _command(row),
        row.reason or "",
    )


def _size(row: RunSummary) -> str:
    """How many workers a run has; where their number changes, of how many."""
    if row.sizes is None:
        return str(row.workers)
    span = f"{row.sizes[0]}..{row.sizes[1]}"
    return span if row.ended is not None or row.state == "queued" else f"{row.workers} of {span}"


def _command(row: RunSummary) -> str:
    """The command of a run; of a run that is made of runs, how many of them are done."""
    if not row.steps or row.steps_place is None:  # the latter where another machine has started it
        return row.command
    done = f"{row.steps_done} of " * (row.steps_done != row.steps)
    best = f", {row.best}" if row.best else ""
    return f"{row.command}, {done}{row.steps} {row.step_word}{'s' * (row.steps != 1)}{best}"


def findings(found: Iterable[Finding], format_: str) -> list[Finding]:
    """The lines of a check-up, each as soon as it is there; returns them."""
    if format_ != "text":
        everything = list(found)
        data(everything, format_)
        return everything
    shown = []
    for each in found:
        level = style(each.level.ljust(8), fg=_LEVEL_COLOURS[each.level])
        say(f"{level}  {each.what.ljust(_LONGEST_WHAT)}  {each.found}")
        if each.fix:
            say(f"{'':{8 + 2 + _LONGEST_WHAT + 2}}{each.fix}")
        shown.append(each)
    return shown


def manifests(found: Sequence[object], format_: str) -> None:
    """Objects for `kubectl apply`."""
    if not found:
        notice("no right is missing")
    elif format_ == "json":
        data({"apiVersion": "v1", "kind": "List", "items": list(found)}, "json")
    else:
        from echelon.cli.printing.data_text import yaml_text

        click.echo(yaml_text(*found), nl=False)


def ranks_of(found: Status) -> tuple[int, ...]:
    """Every rank of a run."""
    return tuple(rank for worker in found.workers for rank in worker.ranks)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns, a line each: fitted into a terminal by rich, plainly aligned elsewhere."""
    cells = [[shown(one_line(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(len(click.unstyle(row[at])) for row in [heads, *cells]) for at in range(len(heads))]
        for row in [heads, *cells]:
            padded = [click.unstyle(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
            click.echo("  ".join(padded).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold" if coloured() else "")
    for at, head in enumerate(heads):
        whole = max(len(click.unstyle(row[at])) for row in cells) if head in _WHOLE and cells else None
        drawn.add_column(head, no_wrap=head not in _SHORTENED, min_width=whole)
    for row in cells:
        texts = [Text.from_ansi(cell) for cell in row]
        for text in texts:
            text.no_wrap, text.overflow = True, "ellipsis"
        drawn.add_row(*texts)
    Console().print(drawn)


def repeatedly(look: Callable[[], T], show: Callable[[T], object], every: float | None) -> None:
    """Look and show once, or again and again until Ctrl-C: on a terminal, on a screen of its own."""
    seen = look()  # what fails at once is shown on the user's own screen
    if every is None:
        show(seen)
        return
    from echelon.cli.printing.screen import Screen, is_possible

    with contextlib.ExitStack() as stack:
        screen = stack.enter_context(Screen()) if is_possible() else None
        while True:
            if screen is None:
                show(seen)
            else:
                screen.draw(partial(show, seen))
            time.sleep(every)
            seen = look()
