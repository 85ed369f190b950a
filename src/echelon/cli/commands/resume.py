"""`echelon resume`."""

from __future__ import annotations

import click

from echelon.cli.options import RAW_HELP, complete_runs, find_run, target_options


@click.command("resume", short_help="Restart a run that failed, was stopped or was lost.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs)
@click.option("-d", "--detach", is_flag=True, help="do not follow it; prints the run's name")
@click.option("--no-wait", is_flag=True, help="fail if it does not fit now, instead of waiting")
@click.option("--raw", is_flag=True, help=RAW_HELP)
@target_options
def resume(name: str | None, detach: bool, no_wait: bool, raw: bool, **target: str | None) -> int:
    """Start a run again, without RUN the newest of this folder, that failed, was stopped or lost: the same
    job, in the same results. A script that keeps a checkpoint in $ECHELON_OUTPUT finds it there;
    ECHELON_RESTART counts on. `logs` and `metrics` show all starts, `events` what happens from then on.

    Code that was shipped (--snapshot, functions, Kubernetes) is the same; a script that runs in place is what
    it is now. On Kubernetes a run with --checkpoints goes on from its safe checkpoints: what was not fetched
    yet is, and they are sent to its new pods. Another one needs its results on a volume (--output).

    \b
    Examples:
      echelon resume RUN
      echelon resume -d RUN
    """
    from echelon.cli.following import follow
    from echelon.cli.printing import render
    from echelon.cli.printing.progress import CopyProgress

    sending = CopyProgress("sending") if detach else None
    run = find_run(name, target, keep_stdin=not detach)
    run.resume(no_wait=no_wait, stays=not detach, sending=sending, fetching=render.fetching())
    format_ = target["format"] or "text"
    if detach:
        render.submitted(run, format_)
        return 0
    return follow.follow(run, run.job(), format_, raw=raw)
