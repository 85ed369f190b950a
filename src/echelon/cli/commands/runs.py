"""The commands that look at runs and end them: ps, status, wait, stop, rm, get."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, get_args

import click

from echelon.cli.attaching import attach_all, find_run_or_steps
from echelon.cli.options import complete_runs_and_pipelines, find_run, target_of, target_options
from echelon.model.status import State

if TYPE_CHECKING:
    from echelon.errors import EchelonError
    from echelon.model.copy import LeftOut, OpenCopy
    from echelon.model.status import RunSummary
    from echelon.notebook.removing import Found, Holding


@click.command("ps", short_help="List runs.")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs_and_pipelines)
@click.option("-a", "--all", "everything", is_flag=True, help="those that have ended too, and copies")
@click.option("-A", "--everybody", "all_users", is_flag=True, help="other people's in the namespace too")
@click.option("-q", "--quiet", "names_only", is_flag=True, help="only the names, a line each")
@click.option("--all-kinds", is_flag=True, help="jobs of Kubeflow's controllers too")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(get_args(State)),
    metavar="STATE",
    help="only runs in this state (failed, running, ...); several times: in one of them",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="only the newest N")
@click.option("--steps", is_flag=True, help="the steps of notebooks too, a line each")
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
    """List your runs that go on; with -a, those that have ended too, and copies to and from volumes. Runs
    that are named, or have a state that is asked for, are listed whether they have ended or not. The steps
    of a notebook are one line.

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
    from echelon.api import engine_at, watched_at
    from echelon.cli.printing import render, render_cluster
    from echelon.engines.base import current_user
    from echelon.model.status import FINAL

    engine, me = engine_at(target_of(target)), current_user()
    format_, ended_too = target["format"] or "text", bool(everything or names or states)
    folded = format_ == "text" and not steps and not names_only
    watched = watched_at(target_of(target)) if all_kinds else None

    def is_mine(copy: OpenCopy) -> bool:
        return all_users or not engine.traits.shared or copy.owner in ("", me)

    def look() -> tuple[list[RunSummary], list[OpenCopy]]:
        from echelon.cli.notebooks.pipelines import with_pipelines

        listed = [*engine.runs(), *(watched.runs() if watched is not None else ())]
        listed = [row for row in listed if names or all_users or row.own]
        rows = with_pipelines(listed, engine, fold=folded, ended_too=ended_too)
        if names:
            rows = _named(rows, listed, names)
        rows = [row for row in rows if ended_too or row.state not in FINAL]
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
            render_cluster.copies(copies)

    render.repeatedly(look, show, every=1.0 if watch else None)
    return 0


def _named(
    rows: Sequence[RunSummary], listed: Sequence[RunSummary], names: Sequence[str]
) -> list[RunSummary]:
    """Of the rows to show, those of these names, and of pipelines that have a step of such a name; `listed`
    are all runs. Raises UnknownRun.
    """
    for name in names:
        if not any(_is_named(row, [name]) for row in (*rows, *listed)):
            from echelon.engines.base import unknown_run

            raise unknown_run(name, [row.name for row in listed])
    steps_of = {row.pipeline for row in listed if _is_named(row, names)}
    return [row for row in rows if _is_named(row, names) or row.name in steps_of]


def _is_named(row: RunSummary, names: Collection[str]) -> bool:
    """Whether a run, or the pipeline that it is a step of, has one of these names, or that address."""
    return row.name in names or row.uri in names or row.pipeline in names


def _last_is_remote() -> bool:
    """Whether the newest run that was started from this folder is in a cluster."""
    from pathlib import Path

    from echelon.engines.recent import started_from

    return next(started_from(Path.cwd()), "").startswith("k8s:")


@click.command("status", short_help="Say how a run stands, and why it failed.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs_and_pipelines)
@target_options
def status(name: str | None, **target: str | None) -> int:
    """Say how a run stands: its workers, its restarts, how far its training has come (as its output tells),
    and, if it failed, the rank that failed first.
    Without RUN, the newest run of this folder. Of a notebook's pipeline, its steps are listed.

    \b
    Examples:
      echelon status RUN
      echelon status RUN -o json
    """
    from echelon.handle import Run

    found, format_ = find_run_or_steps(name, target), target["format"] or "text"
    if isinstance(found, Run):
        from echelon.cli.printing.render_status import show_status

        show_status(seen := found.status(), format_, found.advice(seen))
    else:
        from echelon.cli.notebooks.pipelines import show_standing

        show_standing(found, format_)
    return 0


@click.command("wait", short_help="Wait for a run to end; exits with its code.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs_and_pipelines)
@click.option("--timeout", metavar="TIME", help="give up after 30s, 5m, 2h, ...; the run goes on")
@click.option(
    "--take-over",
    is_flag=True,
    help="look after a run that another machine submitted: admit it, replace lost workers, fetch its results",
)
@target_options
def wait(name: str | None, timeout: str | None, take_over: bool, **target: str | None) -> int:
    """Wait for a run, without RUN the newest of this folder, to end, and exit with its exit code. A
    notebook's pipeline has ended when its last step has.

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
    from echelon.handle import Run
    from echelon.model.resources import parse_duration

    seconds = parse_duration("timeout", timeout) if timeout else None
    run = find_run_or_steps(name, target)
    if not isinstance(run, Run):
        from echelon.cli.notebooks.pipelines import wait_for

        return wait_for(run, seconds, target["format"] or "text", take_over=take_over)
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
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs_and_pipelines)
@click.option("--now", is_flag=True, help="kill at once, without SIGTERM first")
@click.option("--grace", metavar="TIME", help="the time to end, e.g. 2m (default: as for run, 10s)")
@target_options
def stop(names: tuple[str, ...], now: bool, grace: str | None, **target: str | None) -> int:
    """Stop runs, without RUN the newest of this folder: SIGTERM to their ranks, SIGKILL to what is left after
    their --grace. Returns when they have ended. Said again with another --grace, the time begins anew.

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
    pipelines: list[Found] = []
    handles, trouble = (
        attach_all(names, target, stopping=pipelines) if names else ([find_run(None, target)], None)
    )
    for handle in handles:
        if (note := handle.stop(now=now, grace=seconds, wait=False)) is not None:
            render.notice(note)
    troubles: list[EchelonError] = []
    if handles:
        ended = [
            handle.wait(handle.stop_patience(seconds), collect=partial(_collect, handle.collect, troubles))
            for handle in handles
        ]
        render.outcomes(ended, target["format"] or "text")
    if pipelines:
        from echelon.cli.notebooks.pipelines import tell_stopped

        tell_stopped(pipelines, target["format"] or "text")
    for each in troubles:
        render.notice(str(each))
    if trouble is not None:
        raise trouble
    return 0


@click.command("rm", short_help="Forget runs that have ended; results stay.")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs_and_pipelines)
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
    """Forget runs that have ended: their names are free again, their results stay where they are.

    A run is not forgotten while its workers, its keeper or a volume made for it have results that were not
    fetched, nor one whose record cannot be read while something of it runs: --force deletes and ends them.
    A job of Kubeflow's that echelon did not make is deleted, after asking.

    \b
    Examples:
      echelon rm RUN
      echelon rm RUN1 RUN2
      echelon rm train-1                all steps of a notebook's pipeline, and the volume made for it
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
    held: list[Holding] = []
    handles, trouble = attach_all(names, target, held)
    foreign = [handle.uri for handle in handles if handle.foreign]
    if foreign and not yes:
        from echelon.cli.asking import confirm_deletion

        question = f"Delete {len(foreign)} job{'s' * (len(foreign) != 1)} of Kubeflow's?"
        confirm_deletion(question, foreign, if_none=f"it may be deleted: {', '.join(foreign)}")
    gone: list[str] = []
    for handle in handles:
        try:
            with render.told_if_slow(f"waiting until nothing of run {handle.name} is left"):
                kept = handle.remove(render.notice, force=force)
            gone.append(handle.name)
            render.kept(handle.name, kept)
        except EchelonError as error:
            trouble = trouble or error
    if held:
        from echelon.notebook.removing import forget_pipelines, remove_volumes

        remove_volumes(held, render.notice)
        gone += forget_pipelines(held, gone)
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
@click.argument("name", metavar="RUN", shell_complete=complete_runs_and_pipelines)
@click.argument("path", default=".")
@click.option("--to", metavar="DIR", help="the folder to copy into (default: where the run's results belong)")
@target_options
def get(name: str, path: str, to: str | None, **target: str | None) -> int:
    """Copy a file or folder of a run's results, all of them by default, and print where it is. A pattern in
    quotes stands for several. Those of a notebook's pipeline are its folder: work/model.pt, steps/STEP,
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
    from echelon.handle import Run

    found = find_run_or_steps(name, target)
    if not isinstance(found, Run):
        from echelon.cli.notebooks import pipelines

        return pipelines.get(found, path, to, target["format"] or "text")
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
    """The names of the user's runs that have ended, and did so longer ago than a time."""
    from echelon.api import engine_at
    from echelon.cli.notebooks.pipelines import with_pipelines
    from echelon.model.resources import parse_duration
    from echelon.model.status import FINAL

    engine = engine_at(target_of(target))
    before = time.time() - (parse_duration("older-than", older_than) if older_than else 0.0)
    return tuple(
        row.name
        for row in with_pipelines([*engine.runs()], engine, fold=False, ended_too=True)
        if row.state in FINAL and row.own and (row.ended or row.created) <= before
    )


def _collect(fetch: Callable[[], object], troubles: list[EchelonError]) -> None:
    """Fetch the results; what goes wrong with that does not hide how the run ended."""
    from echelon.errors import EchelonError

    try:
        fetch()
    except EchelonError as error:
        troubles.append(error)
