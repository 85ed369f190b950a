"""`%%echelon`: a notebook's cell on workers, with its output in the notebook.

IPython calls it with the magic's line and the cell's text. The cell runs as a script, with what it needs from
the notebook; errors are shown as their message alone."""

from __future__ import annotations

import contextlib
import shlex
import threading
from typing import TYPE_CHECKING, Any

import click

from echelon.cli.help import Group, SectionedCommand
from echelon.cli.options import GROUPS, setting_options
from echelon.cli.printing.say import shown
from echelon.errors import EchelonError, InvalidJob

if TYPE_CHECKING:
    from echelon.handle import Run
    from echelon.model.settings import Settings

_LEFT_OUT = ("module", "format", "dry_run")  # a cell is what runs; a Run shows itself
_FIRST_LINE = "# %%echelon\n"  # stands for the magic, so that lines keep their numbers
_HELP = """Run this cell on workers: with what it needs from the notebook, and its output here. Its last
expression is what `result()` of the run gives.

\b
Examples:
  %%echelon -n 4
  %%echelon -n 2 --out run                 then, in another cell: run.result()
  %%echelon --on k8s --image my/torch --gpus 1 -n {workers}
  %%echelon -d --name fm                   runs while other cells do; echelon.attach("fm") finds it
"""


def register(shell: Any) -> None:
    """Give an IPython shell the magic."""

    def echelon(line: str, cell: str) -> Run | None:
        """`%%echelon --help` tells."""
        return run_cell(shell, line, cell)

    shell.register_magic_function(echelon, "cell", "echelon")


def run_cell(shell: Any, line: str, cell: str) -> Run | None:
    """Start the cell, show what its ranks write until they have ended, and return the run."""
    try:
        given, out = _read(line)
        if given is None:
            return None
        run, stays = _start(shell, given, cell)
        if out is not None:
            shell.user_ns[out] = run
        if stays:
            _wait(run)
    except EchelonError as error:
        raise _without_traceback(error)  # noqa: B904 - it is the same error
    return run


def _read(line: str) -> tuple[Settings | None, str | None]:
    """The settings that the magic's line gives, and the variable for the run; no settings after --help."""
    from echelon.jobfile import settings_from

    try:
        ctx = _command().make_context("%%echelon", shlex.split(line, comments=True))
    except click.exceptions.Exit:  # --help was printed
        return None, None
    except (click.ClickException, ValueError) as error:
        what = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise EchelonError(f"%%echelon {line.strip()}: {what}", hint="%%echelon --help") from None
    flags = dict(ctx.params)
    out = flags.pop("out")
    if out is not None and not out.isidentifier():
        raise InvalidJob("out", out, "is not a variable", hint="--out run")
    given = {key: value for key, value in flags.items() if value not in (None, ())}
    return settings_from(given, source="%%echelon"), out


def _command() -> click.Command:
    options = [*setting_options(everywhere=False), *setting_options(everywhere=True)]
    out = click.Option(["--out"], metavar="NAME", help="the variable that the run is assigned to")
    return SectionedCommand(
        "%%echelon",
        help=_HELP,
        groups=[Group("The cell", ("out",)), *GROUPS],
        params=[out, *(option for option in options if option.name not in _LEFT_OUT)],
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _start(shell: Any, given: Settings, cell: str) -> tuple[Run, bool]:
    """Submit the cell; also whether the notebook waits for the run."""
    from echelon.cli.printing import render
    from echelon.engines.choose import choose_engine
    from echelon.notebook.analysis.flow import names_needed
    from echelon.preparation.prepare import prepare_cell
    from echelon.preparation.sources import find_surroundings, gather
    from echelon.submit import submit

    surroundings = find_surroundings()
    settings = gather(given, surroundings)
    engine = choose_engine(settings.on, context=settings.context, namespace=settings.namespace)
    text = _FIRST_LINE + shell.transform_cell(cell)
    also = names_needed(text, shell.user_ns)
    prepared = prepare_cell(text, shell.user_ns, also, settings, surroundings, engine.traits)
    for note in (*prepared.notes, *engine.notes(prepared.job)):
        render.notice(note)
    run = submit(
        prepared,
        engine,
        no_wait=bool(settings.no_wait),
        stays=False,
        replace=bool(settings.replace),
        tell=render.notice,
    )
    return run, not settings.detach


def _wait(run: Run) -> None:
    """Wait for the end; an interrupted kernel stops the run. Raises RunFailed if it did not succeed."""
    from echelon.cli.following.follow import stopping_on_signals
    from echelon.cli.printing import render

    in_main = threading.current_thread() is threading.main_thread()  # no other may take signals
    with stopping_on_signals(run) if in_main else contextlib.nullcontext():
        run.wait(check=True, show=True, tell=render.notice)


def _without_traceback(error: EchelonError) -> EchelonError:
    """Let IPython show the message alone: where the error was raised tells a user nothing."""
    lines = [f"{type(error).__name__}: {error.message}", *([f"  hint: {error.hint}"] if error.hint else [])]
    error._render_traceback_ = lambda: [shown(line) for line in lines]  # type: ignore[attr-defined]
    return error
