"""`echelon sweep`: from the command line to many runs under one name, followed to their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from echelon.cli.commands.run import RunCommand, settings_of
from echelon.cli.commands.run import run as run_command
from echelon.cli.options import RAW_HELP, target_options
from echelon.errors import InvalidJob, from_os_error
from echelon.model.settings import Settings, SweepSettings, merge

SEARCHES = ("random", "tpe")

if TYPE_CHECKING:
    from echelon.engines.base import Engine
    from echelon.preparation.prepare import Prepared
    from echelon.sweeps.kept import Sweep

_HELP = """Run a script many times, each with other values of its parameters, under one name: as many at a
time as fit.

The parameters come before --, what runs after it, as for `echelon run`. A value reaches the script for {NAME}
in its arguments, and as ECHELON_PARAM_NAME. Trial 7 of the sweep NAME is the run NAME/7, here as in every
command; its results are in ./runs/NAME/7, and ./runs/NAME/trials.csv is the table of all.

\b
  lr=1e-4,1e-3       these values
  layers=2..8        these whole numbers; layers=2..8:3 three of them
  lr=1e-5..1e-1:5    five values, evenly in their logarithm if the range spans a decade
  lr=1e-5..1e-1      any value between them: with --trials N
  @trials.csv        a row is a trial; the first line names the parameters

\b
Examples:
  echelon sweep lr=1e-4,1e-3 bs=32,64 -- --gpus 1 train.py --lr {lr} --batch {bs}
  echelon sweep lr=1e-5..1e-1 --trials 20 --minimize val_loss -- train.py --lr {lr}
  echelon sweep lr=1e-5..1e-1 --trials 50 --search tpe --minimize val_loss -- train.py --lr {lr}
  echelon sweep --array 0..99 --parallel 8 -- convert.py --part {index}
  echelon sweep @trials.csv --seeds 3 -- train.py --lr {lr} --seed {seed}
  echelon sweep -f job.yaml            the parameters are in the file, as `sweep: {space: {lr: [1e-4, 1e-3]}}`
  echelon sweep -f job.yaml lr=1e-2    the same with another value of one of them
  echelon sweep --name tune -d lr=1e-4,1e-3 -- --on k8s --gpus 8 train.py --lr {lr}
  echelon status tune                  the trials, the best first; -o csv, json
  echelon logs tune/7                  what trial 7 wrote
  echelon stop tune                    no trial starts any more, running ones are stopped
  echelon resume tune                  what failed or never ran
"""


class SweepCommand(click.Command):
    """A command that leaves everything after `--` to `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut what comes after the `--`, which click would swallow."""
        if "--" in args:
            at = args.index("--")
            args, ctx.meta["run"] = args[:at], args[at + 1 :]
        return super().parse_args(ctx, args)


@click.command(
    "sweep", cls=SweepCommand, help=_HELP, short_help="Run a script with many values of its parameters."
)
@click.argument("space", nargs=-1, metavar="[NAME=VALUES | @FILE]... -- [RUN OPTIONS] SCRIPT [ARGS]...")
@click.option("--array", metavar="LOW..HIGH", help="a trial for each of these numbers: {index}")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="N",
    help="repeat every trial N times, with {seed} 0 to N-1",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    metavar="N",
    help="draw N trials at random from all combinations",
)
@click.option(
    "--search",
    type=click.Choice(SEARCHES),
    help="how they are drawn: random (default), or tpe: by Optuna, from the results of earlier trials",
)
@click.option("--seed", type=int, metavar="N", help="seed of the draw: the same seed gives the same trials")
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    metavar="N",
    help="trials at the same time (default: as many as there are cores, or as the queue lets in)",
)
@click.option("--minimize", metavar="METRIC", help="the best trial has the lowest value of this metric")
@click.option("--maximize", metavar="METRIC", help="the best trial has the highest value of this metric")
@click.option(
    "--value",
    metavar="last|best|mean:N",
    help="which of a trial's values of that metric counts: the last (default), the best, or the mean of the "
    "last N",
)
@click.option(
    "--early-stop", is_flag=True, help="end trials that are behind the median of the others at the same step"
)
@click.option("--fail-fast", is_flag=True, help="end all trials when one fails")
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    type=click.Path(),
    help="a job file; its key `sweep` may hold all of these options",
)
@click.option("--name", metavar="NAME", help="the sweep's name; trials are NAME/1, NAME/2, ...")
@click.option("-d", "--detach", is_flag=True, help="do not follow it; prints the sweep's name")
@click.option("--dry-run", is_flag=True, help="show the trials, and what the first would do; do nothing")
@click.option("--raw", is_flag=True, help=RAW_HELP)
@target_options
@click.pass_context
def sweep(ctx: click.Context, /, space: tuple[str, ...], raw: bool, **options: Any) -> int:
    """Gather, prepare, start, follow."""
    from echelon.cli.following import follow
    from echelon.cli.printing import render
    from echelon.cli.printing.words import one_line
    from echelon.engines.choose import choose_engine
    from echelon.preparation.prepare import prepare
    from echelon.preparation.sources import find_surroundings, gather
    from echelon.sweeps.request import merge as merge_sweep
    from echelon.sweeps.request import request_of
    from echelon.sweeps.starting import check_settings, notes_on, plan_sweep, start_sweep

    words, file = ctx.meta.get("run", []), options["file"]
    if file is None and not words:
        raise click.UsageError("Nothing to run: the script comes after --. See `echelon sweep --help`.")
    given, overrides, files = _run_settings(words if file is None else ["-f", file, *words])
    surroundings = find_surroundings()
    settings = gather(merge(_own(options), given), surroundings, overrides, next(iter(files), None))
    request = request_of(merge_sweep(_asked(options), settings.sweep), space, _read)
    settings = replace(settings, sweep=None)
    check_settings(settings)
    engine = choose_engine(settings.on, context=settings.context, namespace=settings.namespace)
    prepared = prepare(settings, surroundings, engine.traits)
    planned = plan_sweep(request, prepared, engine, named=settings.name is not None)
    for note in (*prepared.notes, *engine.notes(prepared.job), *notes_on(planned)):
        render.notice(one_line(note))
    format_ = settings.format or "text"
    if settings.dry_run:
        _show_what_would_happen(planned, prepared, engine, format_)
        return 0
    started = start_sweep(planned, prepared, engine, render.notice)
    if engine.traits.remote:
        render.notice(f"{started.name} needs this machine to stay on: it submits the trials from here")
    if settings.detach:
        render.submitted(started, format_)
        return 0
    code = follow.follow(started, started.job(), format_, raw=raw)
    if format_ == "text":
        _tell_best(started.status(progress=False).steps, planned)
    return code


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise from_os_error(error, path) from None
    except UnicodeDecodeError:
        raise InvalidJob("sweep", f"@{path}", "is not UTF-8", hint="save it as CSV in UTF-8") from None


def _asked(options: Mapping[str, Any]) -> SweepSettings:
    """What is said of the sweep before the `--`."""
    names = (each.name for each in fields(SweepSettings))
    return SweepSettings(
        **{name: options.get(name) or None for name in names if name != "seed"}, seed=options["seed"]
    )


def _own(options: Mapping[str, Any]) -> Settings:
    """What `sweep` and `run` both have, as it stands before the `--`."""
    return Settings(
        name=options["name"],
        detach=options["detach"] or None,
        dry_run=options["dry_run"] or None,
        format=options["format"],
        on=options["on"],
        context=options["context"],
        namespace=options["namespace"],
    )


def _run_settings(words: Sequence[str]) -> tuple[Settings, tuple[str, ...], tuple[Path, ...]]:
    """What is said after the `--`: the settings, what overrides a job file, and that file."""
    assert isinstance(run_command, RunCommand)
    # The help of `run` is not meant by `sweep ... -- train.py --help`.
    with run_command.make_context("echelon sweep ... --", list(words)) as ctx:
        flags = dict(ctx.params)
        files, overrides = flags.pop("files"), flags.pop("overrides")
        for name, text in (("raw", "--raw"), ("show_rank", "--show-rank"), ("maps", "--map")):
            if flags.pop(name):
                raise click.UsageError(f"{text} is not for what a sweep runs.")
        if len(files) > 1:
            raise click.UsageError("A sweep takes one job file: -f FILE.")
        run_words = flags.pop("words")
        given = settings_of(flags, run_words, is_command=ctx.meta["command"], has_file=bool(files))
    return given, overrides, files


def _show_what_would_happen(planned: Sweep, prepared: Prepared, engine: Engine, format_: str) -> None:
    from echelon.admission import find_plan
    from echelon.cli.printing import render
    from echelon.sweeps.starting import first_job

    if format_ != "text":
        render.data({"name": planned.name, "job": planned.job, "trials": planned.trials}, format_)
        return
    if planned.search is None:
        names = list(planned.trials[0].values)
        rows = [(trial.name, *(trial.values[name] for name in names)) for trial in planned.trials]
        render.table(("TRIAL", *names), rows)
    else:
        render.notice(f"{len(planned.trials)} trials, whose values are chosen one after the other")
    first = replace(prepared, job=first_job(planned))
    render.preview(first, find_plan(first.job, engine, tell=render.notice), engine, format_)


def _tell_best(steps: Sequence[Any], planned: Sweep) -> None:
    from echelon.cli.printing import render
    from echelon.model.trials import best_of, words_of_best

    if planned.objective is not None and (best := best_of(steps, planned.objective)) is not None:
        render.notice(f"{words_of_best(steps, planned.objective)}: trial {best.name}")
