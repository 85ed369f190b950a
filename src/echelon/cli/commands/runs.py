"""The commands that look at runs and end them: ps, status, wait, stop, rm, get."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, get_args

import click

from echelon.cli.help import RenamedFlags
from echelon.cli.options import (
    complete_runs,
    find_run,
    find_runs,
    target_of,
    target_options,
    target_options_with,
)
from echelon.model.state import State

if TYPE_CHECKING:
    from echelon.errors import EchelonError
    from echelon.handle import Run
    from echelon.model.copy import LeftOut, OpenCopy
    from echelon.model.status import RunSummary, Status


@click.command("ps", cls=RenamedFlags, former={"--everybody": "--all-users"}, short_help="List runs.")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("-a", "--all", "everything", is_flag=True, help="ended runs too, and copies")
@click.option("-A", "--all-users", is_flag=True, help="runs of every user of the namespace")
@click.option("-q", "--quiet", "names_only", is_flag=True, help="only the names, one per line")
@click.option("--all-kinds", is_flag=True, help="jobs of Kubeflow controllers too")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(get_args(State)),
    metavar="STATE",
    help="only runs in this state (failed, running, ...); several times: in one of them",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="only the newest N")
@click.option("--steps", is_flag=True, help="steps of notebooks and trials of sweeps too, one line each")
@click.option("--watch", is_flag=True, help="again every second, until Ctrl-C")
@target_options
def ps(
    everything: bool,
    all_users: bool,
    names_only: bool,
    all_kinds: bool,
    names: tuple[str, ...],
    states: tuple[str, ...],
    limit: int | None,
    steps: bool,
    watch: bool,
    **target: str | None,
) -> int:
    """List your active runs; with -a, ended runs too, and copies to and from volumes. Runs
    that are named, or have a state that is asked for, are listed whether they have ended or not. A notebook's
    run is one line; with --steps, those of its steps are below it.

    \b
    Examples:
      echelon ps
      echelon ps -a -o json
      echelon ps -a --steps
      echelon ps --state failed --limit 3
      echelon ps RUN1 RUN2
      echelon stop $(echelon ps -q)
      echelon ps -A --on k8s
      echelon ps --all-kinds --on k8s
    """
    from echelon import children
    from echelon.cli.printing import render
    from echelon.engines.base import current_user
    from echelon.model.status import FINAL
    from echelon.preparation.sources import engine_at, watched_at

    engine = engine_at(target_of(target))
    format_, ended_too = target["format"] or "text", bool(everything or names or states)
    as_table = format_ == "text" and not names_only
    arrange = list if not as_table else children.steps_below if steps else children.folded
    watched = watched_at(target_of(target)) if all_kinds else None

    def is_mine(copy: OpenCopy) -> bool:
        return all_users or not engine.traits.shared or copy.owner in ("", current_user())

    def look() -> tuple[list[RunSummary], list[OpenCopy]]:
        every = [*children.listed(engine), *(watched.runs() if watched is not None else ())]
        every = [row for row in every if names or all_users or row.own]
        rows = arrange(every)
        if names:
            rows = _named(rows, every, names)
        going = {row.parent for row in every if row.state not in FINAL}

        def goes_on(row: RunSummary) -> bool:
            outlived = row.steps is not None and row.name in going  # by a step, when its executor was killed
            return row.state not in FINAL or outlived

        rows = [row for row in rows if ended_too or goes_on(row)]
        rows = [row for row in rows if not states or row.state in states][:limit]
        there = engine.volumes.copies() if everything and engine.volumes is not None else ()
        return rows, [each for each in there if is_mine(each)]

    def show(found: tuple[list[RunSummary], list[OpenCopy]]) -> None:
        rows, copies = found
        if names_only:
            render.names([row.name for row in rows], format_)
            return
        if copies and format_ != "text":
            render.data([*rows, *copies], format_)
            return
        render.runs(rows, format_, ended_too=ended_too, all_users=all_users)
        if not rows and format_ == "text" and not engine.traits.remote and _last_is_remote():
            render.notice(
                "`echelon ps --on k8s` lists those in the cluster; ECHELON_ON=k8s makes it the default"
            )
        if copies:
            from echelon.cli.printing import render_cluster

            render_cluster.copies(copies)
        if everything and as_table and not names:
            _tell_earlier_pipelines()

    render.repeatedly(look, show, every=1.0 if watch else None)
    return 0


def _named(rows: Sequence[RunSummary], every: Sequence[RunSummary], names: Sequence[str]) -> list[RunSummary]:
    """Of the rows to show, those of these names, and of runs that have a step of such a name; `every` are all
    runs. Raises UnknownRun.
    """
    from echelon.finding import step_names

    wanted: set[str] = set()
    for name in names:
        meant = {name, *step_names(name)} if "/" in name and "://" not in name else {name}
        if not any(_is_named(row, meant) for row in (*rows, *every)):
            from echelon.engines.base import unknown_run

            raise unknown_run(name, [row.name for row in every])
        wanted |= meant
    steps_of = {row.parent for row in every if _is_named(row, wanted)}
    return [row for row in rows if _is_named(row, wanted) or row.name in steps_of]


def _is_named(row: RunSummary, names: Collection[str]) -> bool:
    """Whether a run, or the run that it is a step of, has one of these names, or that address."""
    return row.name in names or row.uri in names or row.parent in names


def _tell_earlier_pipelines() -> None:
    """Pipelines that an earlier version has run are not runs, and in no list of them."""
    from echelon.cli.printing.render import notice
    from echelon.cli.printing.words import near
    from echelon.finding import earlier_pipelines

    if found := earlier_pipelines():
        places = ", ".join(near(str(folder)) for folder in found.values())
        notice(
            f"not listed: pipelines that an earlier version of echelon has run; their results are in {places}"
        )


def _last_is_remote() -> bool:
    """Whether the newest run that was started from this folder is in a cluster."""
    from pathlib import Path

    from echelon.engines.recent import started_from

    return next(started_from(Path.cwd()), "").startswith("k8s:")


@click.command("status", short_help="Show the state of a run, and why it failed.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs)
@target_options_with("csv")
def status(name: str | None, **target: str | None) -> int:
    """Show the state of a run: its workers, its restarts, how far its training has come (by its output),
    and, if it failed, the rank that failed first. Without RUN, the newest run of this folder. Of a
    notebook's run, its steps are listed; RUN/STEP is one of
    them, here as in every command. Of a sweep, its trials, the best first, or, with -o csv, by their numbers.

    \b
    Examples:
      echelon status RUN
      echelon status RUN/STEP
      echelon status RUN -o json
      echelon status SWEEP -o csv
    """
    from echelon.cli.printing.render_status import show_status

    found = find_run(name, target)
    if target["format"] == "csv" and not found.has_steps:
        raise click.UsageError("-o csv is for a sweep: a line for each of its trials.")
    show_status(seen := found.status(), target["format"] or "text", found.advice(seen))
    return 0


@click.command("wait", short_help="Wait for a run to end; exits with its code.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs)
@click.option("--timeout", metavar="TIME", help="stop waiting after 30s, 5m, 2h, ...; the run continues")
@click.option(
    "--take-over",
    is_flag=True,
    help="look after a run that another machine submitted: admit it, replace lost workers, fetch its results",
)
@target_options
def wait(name: str | None, timeout: str | None, take_over: bool, **target: str | None) -> int:
    """Wait for a run, without RUN the newest of this folder, to end, and exit with its exit code.

    A run that this machine submitted is looked after meanwhile, and its results are fetched; of another
    machine's run nothing is changed, unless --take-over is given.

    \b
    Examples:
      echelon wait RUN && echo trained
      echelon wait RUN --timeout 2h
      echelon wait RUN --take-over
    """
    from echelon.cli.following.follow import report_waiting
    from echelon.cli.printing import render
    from echelon.model.resources import parse_duration

    seconds = parse_duration("timeout", timeout) if timeout else None
    run = find_run(name, target)
    report_waiting(run)
    troubles: list[EchelonError] = []
    ended = run.wait(
        seconds,
        take_over=take_over,
        tell=render.notice,
        collect=lambda: _collect(lambda: render.collecting(run), troubles),
    )
    render.outcome(ended, target["format"] or "text", run.advice(ended))
    return render.final_code(ended.exit_code or 0, troubles[0] if troubles else None)


@click.command("stop", short_help="Stop runs.")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--now", is_flag=True, help="kill at once, without SIGTERM first")
@click.option("--grace", metavar="TIME", help="the time to end, e.g. 2m (default: as for run, 10s)")
@target_options
def stop(names: tuple[str, ...], now: bool, grace: str | None, **target: str | None) -> int:
    """Stop runs, without RUN the newest of this folder: SIGTERM to their ranks, SIGKILL to what is left after
    their --grace. Returns when they have ended. Said again with another --grace, the time begins anew. Of a
    notebook's run no further step starts, and those that run are stopped.

    \b
    Examples:
      echelon stop RUN
      echelon stop --grace 2m RUN
      echelon stop --now RUN1 RUN2
    """
    from echelon.cli.printing import render
    from echelon.model.resources import parse_duration

    if now and grace is not None:
        raise click.UsageError("--now leaves no time, and --grace gives some: leave out one of them.")
    seconds = None if grace is None else parse_duration("grace", grace)
    handles, trouble = find_runs(names, target) if names else ([find_run(None, target)], None)
    every = {each.uri: each for handle in handles for each in (handle, *handle.left_running())}
    for handle in handles:
        if (note := handle.stop(now=now, grace=seconds, wait=False)) is not None:
            render.notice(note)
    troubles: list[EchelonError] = []
    if every:
        ended = [_end_of(each, seconds, troubles) for each in every.values()]
        render.outcomes(ended, target["format"] or "text")
    for each in troubles:
        render.notice(str(each))
    if trouble is not None:
        raise trouble
    return 0


@click.command("rm", short_help="Remove runs that have ended; their results stay.")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--finished", is_flag=True, help="all your runs that have ended, however they did")
@click.option("--older-than", metavar="TIME", help="all your runs that ended longer ago than 12h, 7d, ...")
@click.option("--force", is_flag=True, help="also where results are lost that were not fetched")
@click.option("-y", "--yes", is_flag=True, help="delete a job that echelon did not make without asking")
@target_options
def rm(
    names: tuple[str, ...],
    finished: bool,
    older_than: str | None,
    force: bool,
    yes: bool,
    **target: str | None,
) -> int:
    """Remove runs that have ended: their names are free again, their results stay where they are.

    A run is not removed while its workers, its keeper or a volume made for it have results that were not
    fetched, nor one whose record cannot be read while something of it runs: --force deletes and ends them.
    A Kubeflow job that echelon did not make is deleted, after asking.

    \b
    Examples:
      echelon rm RUN
      echelon rm RUN1 RUN2
      echelon rm train-1                with the runs of a notebook's steps, and the volume made for them
      echelon rm --finished
      echelon rm --older-than 7d
      echelon rm --yes k8s://NAMESPACE/pytorchjob/NAME
    """
    from echelon.cli.printing import render
    from echelon.errors import EchelonError

    by_age = finished or older_than is not None
    if names and by_age:
        raise click.UsageError("Name runs, or say --finished or --older-than TIME, not both.")
    if not names and not by_age:
        raise click.UsageError("Name runs, or say --finished or --older-than TIME.")
    names = _ended(older_than, target) if by_age else names
    handles, trouble = find_runs(names, target)
    foreign = [handle.uri for handle in handles if handle.foreign]
    if foreign and not yes:
        from echelon.cli.printing.say import confirm_deletion

        question = f"Delete {len(foreign)} Kubeflow job{'s' * (len(foreign) != 1)}?"
        confirm_deletion(question, foreign, if_none=f"it may be deleted: {', '.join(foreign)}")
    gone: list[str] = []
    with_parent: set[str] = set()
    for handle in handles:
        try:
            if handle.uri in with_parent:
                continue
            with_parent |= {step.uri for step in handle.steps().values()}
            with render.notice_if_slow(f"waiting until nothing of run {handle.name} is left"):
                kept = handle.remove(render.notice, force=force)
            gone.append(handle.name)
            render.kept(handle.name, kept)
        except EchelonError as error:
            trouble = trouble or error
    if gone or (by_age and trouble is None):
        format_ = target["format"] or "text"
        render.removed(gone, format_)
        if not gone and format_ == "text":
            render.notice(
                "no run of yours has ended" + (f" longer ago than {older_than}" if older_than else "")
            )
    if trouble is not None:
        raise trouble
    return 0


@click.command("get", short_help="Copy results of a run.")
@click.argument("name", metavar="RUN", shell_complete=complete_runs)
@click.argument("path", default=".")
@click.option("--to", metavar="DIR", help="the folder to copy into (default: where the run's results belong)")
@target_options
def get(name: str, path: str, to: str | None, **target: str | None) -> int:
    """Copy a file or folder of a run's results, all of them by default, and print where it is. A pattern in
    quotes stands for several. Those of a notebook's run are its folder: work/model.pt, steps/STEP,
    notebook.html.

    Without --to, on the machine that submitted the run, they come home, and its workers are let go once all
    of them are there. With --to the run and its workers stay as they are.

    \b
    Examples:
      echelon get RUN
      echelon get RUN ckpt/model.pt --to /tmp
      echelon get RUN 'ckpt/*.pt' --to /tmp
    """
    from echelon.cli.printing import render
    from echelon.engines.results import is_pattern

    found = find_run(name, target)
    started = time.monotonic()
    left_out: list[LeftOut] = []
    try:
        if is_pattern(path):
            places = found.get_matching(path, to, notice=left_out.append, tell=render.notice)
        else:
            places = [found.get(path, to, notice=left_out.append, tell=render.notice)]
    finally:
        render.left_out(left_out)
    for place in places:
        render.fetched(place, time.monotonic() - started, target["format"] or "text")
    return 0


def _ended(older_than: str | None, target: Mapping[str, str | None]) -> tuple[str, ...]:
    """The names of the user's runs that have ended, and did so longer ago than a time. Steps go with the run
    that they are a part of, which stays while one of them is active.
    """
    from echelon.children import listed
    from echelon.model.resources import parse_duration
    from echelon.model.status import FINAL
    from echelon.preparation.sources import engine_at

    rows = [row for row in listed(engine_at(target_of(target))) if row.own]
    before = time.time() - (parse_duration("older-than", older_than) if older_than else 0.0)
    parents = {row.name for row in rows if row.steps is not None}
    going = {row.parent for row in rows if row.state not in FINAL}
    return tuple(
        row.name
        for row in rows
        if row.state in FINAL
        and row.parent not in parents
        and row.name not in going
        and (row.ended or row.created) <= before
    )


def _end_of(run: Run, grace: float | None, troubles: list[EchelonError]) -> Status:
    """How a run ended that was stopped. Of a damaged one that cannot be read, and nothing of it runs."""
    from echelon.engines.base import RunDamaged

    try:
        return run.wait(run.stop_patience(grace), collect=partial(_collect, run.collect, troubles))
    except RunDamaged:
        return run.status(progress=False)


def _collect(fetch: Callable[[], object], troubles: list[EchelonError]) -> None:
    """Fetch the results; what goes wrong with that does not hide how the run ended."""
    from echelon.errors import EchelonError

    try:
        fetch()
    except EchelonError as error:
        troubles.append(error)
