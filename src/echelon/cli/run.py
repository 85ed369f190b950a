"""`echelon run`: from the command line to a run, followed to its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from echelon.cli.options import RAW_HELP, SectionedCommand, setting_options
from echelon.model.settings import Settings

_HELP = """Train a script, a module or a command on many workers.

Everything after the script (or after -m MODULE, or after --) belongs to it; after -f FILE -- come arguments
instead of the file's. What it writes to the folder in $ECHELON_OUTPUT, or to a path with {output} in its
arguments, is in ./runs/RUN.

\b
Examples:
  echelon run -n 2 train.py --epochs 3            two workers, here
  echelon run --gpus 4 train.py                   one worker, one process per GPU
  echelon run -n 2 --procs 2 -m pkg.train --lr 1e-3 --checkpoint_path '{output}/ckpt'
  echelon run -n 4 -- ./any-program --with args   not Python at all
  echelon run -f job.yaml --set workers=8         a job kept in a file
  echelon run -d --name fm train.py               detached: prints the run's name
"""


class RunCommand(SectionedCommand):
    """A command that leaves everything after its script or module alone, and knows what came after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep a module's arguments from click, and remember the `--`, which it would swallow."""
        end = _end_of_flags(self.params, args)
        flags, after = args[:end], args[end:]
        rest = super().parse_args(ctx, flags)
        ctx.meta["command"] = after[:1] == ["--"] and ctx.params.get("module") is None
        ctx.params["words"] = tuple(after[1:] if ctx.meta["command"] else after)
        return rest


@click.command(
    "run",
    cls=RunCommand,
    help=_HELP,
    short_help="Train a script, a module or a command on many workers.",
    context_settings={"allow_interspersed_args": False},
    params=[
        *setting_options(everywhere=False),
        *setting_options(everywhere=True),
        click.Option(
            ["-f", "--file", "file"],
            type=click.Path(path_type=Path, readable=False),
            help="a job file (YAML)",
        ),
        click.Option(
            ["--set", "overrides"], multiple=True, metavar="KEY=VALUE", help="override a key of the job file"
        ),
        click.Option(["--raw"], is_flag=True, help=RAW_HELP),
        click.Argument(
            ["words"],
            nargs=-1,
            type=click.UNPROCESSED,
            metavar="[SCRIPT | -- COMMAND] [ARGS]...",
            shell_complete=lambda _ctx, _param, begun: [CompletionItem(begun, type="file")],
        ),
    ],
)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    file: Path | None,
    overrides: tuple[str, ...],
    raw: bool,
    words: tuple[str, ...],
    **flags: Any,
) -> int:
    """Gather, prepare, submit, follow."""
    from echelon.cli import follow, render
    from echelon.engines.choose import choose_engine
    from echelon.prepare import prepare
    from echelon.sources import find_surroundings, gather
    from echelon.submit import submit

    given = _settings(flags, words, is_command=ctx.meta["command"], has_file=file is not None)
    surroundings = find_surroundings()
    settings = gather(given, surroundings, overrides, file)
    foreground = not settings.detach and not settings.dry_run
    engine = choose_engine(
        settings.on, context=settings.context, namespace=settings.namespace, keep_stdin=foreground
    )
    prepared = prepare(settings, surroundings, engine.traits)
    job = prepared.job
    for note in (*prepared.notes, *engine.notes(job)):
        render.notice(note)
    for word in _STRAYED.intersection(job.args):
        render.notice(f"{word} is after the script, which gets it; flags of echelon go before the script")
    if settings.dry_run:
        from echelon.admission import find_plan

        render.preview(prepared, find_plan(job, engine), engine, settings.format or "text")
        return 0
    handle = submit(prepared, engine, no_wait=bool(settings.no_wait), stays=foreground)
    if not foreground:
        render.submitted(handle, settings.format or "text")
        return 0
    return follow.follow(handle, job, settings.format or "text", raw=raw)


# Of the flags that are easily put last, those that hardly any script has.
_STRAYED = frozenset(("--on", "--namespace", "--dry-run", "--restarts"))


def _end_of_flags(params: Sequence[click.Parameter], args: Sequence[str]) -> int:
    """Where the flags of `run` end: at the script, at `--`, or right after the module."""
    valued = {
        name
        for param in params
        if isinstance(param, click.Option) and not param.is_flag
        for name in param.opts
    }
    position = 0
    while position < len(args):
        word = args[position]
        if word in ("-", "--") or not word.startswith("-"):
            return position
        position += 1
        name, attached, _ = word.partition("=")
        if not word.startswith("--"):  # -dn2 means -d -n 2
            at = next((at for at, letter in enumerate(word) if f"-{letter}" in valued), len(word) - 1)
            name, attached = f"-{word[at]}", word[at + 1 :]
        if name in valued and not attached:
            position += 1
        if name in ("-m", "--module"):
            return position
    return len(args)


def _settings(flags: dict[str, Any], words: tuple[str, ...], *, is_command: bool, has_file: bool) -> Settings:
    """The flags as settings; only those that were given."""
    from echelon.jobfile import settings_from

    given: dict[str, Any] = {key: value for key, value in flags.items() if value not in (None, ())}
    if "module" in given or (is_command and has_file and words):
        given["args"] = list(words)  # a job file always has what to run
    elif is_command and words:
        given["command"] = list(words)
    elif words:
        given["script"] = words[0]
        if words[1:]:
            given["args"] = list(words[1:])
    elif not has_file:
        raise click.UsageError(
            "Nothing to run. Give a script, -m MODULE, -f FILE or -- COMMAND; see `echelon run --help`."
        )
    return settings_from(given, source="the command line")
