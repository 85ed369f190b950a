"""`echelon run`: from the command line to a run, followed to its end."""

from __future__ import annotations

import gc
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from echelon.cli.help import SectionedCommand
from echelon.cli.options import GROUPS, MAP, RAW_HELP, setting_options
from echelon.errors import InvalidJob
from echelon.model.pods.pod import JOB, NATIVE
from echelon.model.settings import Settings

if TYPE_CHECKING:
    from echelon.cli.printing.progress import CopyProgress
    from echelon.engines.base import Engine
    from echelon.model.engine.traits import Traits
    from echelon.model.job import Job
    from echelon.model.status import Status
    from echelon.preparation.prepare import Prepared

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
  echelon run --on k8s -n 2 --gpus 8 --dry-run train.py   what would run where, in a cluster
  echelon run --on k8s --total-gpus 6 train.py    shares and nodes are chosen for you
  echelon run -f pytorchjob.yaml                  a Kubeflow job in your cluster, without its operator
"""
_MORE_EXAMPLES = """\b
More examples:
  echelon run -n 8 --show-rank 0 train.py         prints only what rank 0 writes; logs have all
  echelon run --name fm --replace train.py        again under the same name
  echelon run --on k8s -d --gpus 8 --priority 5 --timeout 2h train.py   sooner in the queue, and for how long
  echelon run --on k8s --include data/ --dry-run train.py   what would travel, and where to
  echelon run --on k8s -d --code-volume pvc:shelf train.py  detached, with more than 5 MiB of code
  echelon run --on k8s -d --keep 3d:50Gi train.py           a small pod keeps up to 50 GiB for three days
  echelon run --on k8s --label team=vision --pod-patch patch.yaml train.py
  echelon run -f volume.yaml -f pytorchjob.yaml   a Kubeflow job, with what it needs in files of their own
  echelon run -f pytorchjob.yaml --on local --map /opt/mnist/src=./src   the same on this machine
  echelon run -f pytorchjob.yaml --as native      the same by Kubeflow's own controller
  echelon run --as pytorchjob -n 4 train.py       a script as a PyTorchJob, run by Kubeflow's controller
  echelon run --as pytorchjob -n 4 --dry-run -o yaml train.py   what would be created for that
  echelon run --as trainjob -n 4 train.py         the same as a TrainJob, run by Kubeflow's Trainer
"""


class RunCommand(SectionedCommand):
    """A command that leaves everything after its script or module alone, and knows what came after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep a module's arguments from click, and remember the `--`, which it would swallow."""
        end = _end_of_flags(self.params, args)
        flags, after = args[:end], args[end:]
        if flags and flags[-1] in self.get_help_option_names(ctx):
            flags, after = [*flags, *after[:1]], after[1:]  # a word that the help is about
        if "-np" in flags:  # which would be -n p
            raise click.UsageError(_no_such_option("-np", self.params), ctx=ctx)
        for word, value in pairwise((*flags, "")):
            model = _MODEL.fullmatch(value if word == "--gpus" else word.removeprefix("--gpus="))
            if model is not None and word.startswith("--gpus"):
                instead = f"--gpus {model[2] or 1} --gpu-type {model[1]}"
                raise click.UsageError(f"--gpus is a number; the model has its own flag: {instead}", ctx=ctx)
        try:
            rest = super().parse_args(ctx, flags)
        except click.NoSuchOption as error:
            raise click.UsageError(_no_such_option(error.option_name, self.params), ctx=ctx) from None
        ctx.meta["command"] = after[:1] == ["--"] and ctx.params.get("module") is None
        ctx.params["words"] = tuple(after[1:] if ctx.meta["command"] else after)
        return rest


@click.command(
    "run",
    cls=RunCommand,
    help=_HELP,
    groups=GROUPS,
    more_examples=_MORE_EXAMPLES,
    short_help="Train a script, a module or a command on many workers.",
    context_settings={"allow_interspersed_args": False},
    params=[
        *setting_options(everywhere=False),
        *setting_options(everywhere=True),
        click.Option(
            ["-f", "--file", "files"],
            multiple=True,
            type=click.Path(path_type=Path, readable=False),
            help="a job file (YAML), or a Kubeflow job with the objects that it needs (several times)",
        ),
        MAP,
        click.Option(
            ["--set", "overrides"], multiple=True, metavar="KEY=VALUE", help="override a key of the job file"
        ),
        click.Option(["--raw"], is_flag=True, help=RAW_HELP),
        click.Option(
            ["--show-rank", "show_rank"],
            multiple=True,
            type=click.IntRange(min=0),
            metavar="N",
            help="print only what this rank writes; the logs have all",
        ),
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
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    raw: bool,
    show_rank: tuple[int, ...],
    maps: tuple[str, ...],
    words: tuple[str, ...],
    **flags: Any,
) -> int:
    """Gather, prepare, submit, follow."""
    # Until the run is submitted next to nothing becomes garbage: imports are most of it, and to look through
    # what they make, again and again, takes a tenth of their time.
    gc.disable()
    ctx.call_on_close(gc.enable)
    from echelon.cli.following.terminal import offer_terminal
    from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
    from echelon.preparation.sources import find_surroundings, gather

    given = settings_of(flags, words, is_command=ctx.meta["command"], has_file=bool(files))
    surroundings = find_surroundings()
    manifest = None
    if files:
        from echelon.cli.kubeflow import read_kubeflow

        native = given.job_kind == NATIVE
        manifest = read_kubeflow(files, given, surroundings, native=native)
        if native and manifest is not None:
            from echelon.cli.kubeflow import run_native

            return run_native(manifest, given, raw=raw, show_rank=show_rank)
    job_file = next(iter(files), None) if manifest is None else manifest.settings
    settings = gather(given, surroundings, overrides, job_file)
    foreground = not settings.detach and not settings.dry_run
    terminal = offer_terminal() if foreground and settings.format in (None, "text") else None
    engine = choose_engine(
        settings.on,
        context=settings.context,
        namespace=settings.namespace,
        keep_stdin=foreground,
        terminal=terminal.descriptor if terminal is not None else None,
        default=LOCAL if manifest is None and given.job_kind is None else CLUSTER,
        soon=True,
    )
    # A cluster is asked meanwhile.
    from echelon.bundle import pack_files
    from echelon.cli.printing import render
    from echelon.model.job import ranks_asked
    from echelon.preparation.prepare import named_after, prepare
    from echelon.submit import submit, withdraw

    _check_kind(given.job_kind, engine.traits)
    if manifest is None:
        _check_maps(maps)
        prepared = prepare(settings, surroundings, engine.traits)
        job, beside = prepared.job, None
    else:
        from echelon.cli.kubeflow import mark, objects_beside, settle_place

        here = settle_place(manifest, settings, engine, maps, surroundings)
        named = named_after(here.settings, manifest.document["metadata"].get("generateName"))
        prepared = mark(prepare(named, surroundings, engine.traits), manifest, engine.traits)
        if here.files:
            prepared = replace(prepared, bundle=pack_files(here.files))
        for note in here.notes:
            render.notice(note)
        job = prepared.job
        beside = objects_beside(manifest, job, engine, render.notice, dry_run=bool(settings.dry_run))
    for note in (*prepared.notes, *engine.notes(job)):
        render.notice(note)
    for word in _strayed(job, surroundings.folder):
        render.notice(f"{word} is after the script, which gets it; flags of echelon go before the script")
    if settings.dry_run:
        _show_what_would_happen(prepared, settings, engine)
        return 0
    _check_ranks(show_rank, ranks_asked(job))
    volume = job.pod.code_volume if engine.traits.remote else None
    with render.notice_if_slow(f"sending the code to volume {volume.claim}") if volume else nullcontext():
        handle = submit(
            prepared,
            engine,
            no_wait=bool(settings.no_wait),
            stays=foreground,
            replace=bool(settings.replace),
            tell=render.notice,
            beside=beside,
            sending=None if foreground else _code_progress(),
        )
    gc.enable()
    if not foreground:
        render.submitted(handle, settings.format or "text")
        return 0
    if terminal is not None and not terminal.was_taken():
        terminal = None
    try:
        from echelon.cli.following import follow  # not before the run is submitted, so that it starts sooner
    except KeyboardInterrupt:
        withdraw(handle)
        raise
    advise = partial(_advise, prepared)
    return follow.follow(
        handle, job, settings.format or "text", raw=raw, only=show_rank, terminal=terminal, advise=advise
    )


def _code_progress() -> CopyProgress:
    """What shows how the code of a detached run is sent."""
    from echelon.cli.printing.progress import CopyProgress

    return CopyProgress("code")


def _advise(prepared: Prepared, status: Status) -> str | None:
    """What to do about a run that failed because a file did not travel."""
    cause, project = status.root_cause, prepared.project
    if cause is None or not cause.error or prepared.bundle is None or project is None:
        return None
    from echelon.bundle.travel import why_missing

    folder = (prepared.job.cwd or "").removeprefix("{code}").strip("/")
    return why_missing(cause.error, prepared.bundle.withheld, folder, project)


def _check_kind(kind: str | None, traits: Traits) -> None:
    """A file's kind has no effect on this machine; one that was asked for must not be ignored."""
    if kind not in (None, JOB, NATIVE) and not traits.remote:
        raise InvalidJob("as", kind, "needs a cluster", hint="leave --on local out")


def _show_what_would_happen(prepared: Prepared, settings: Settings, engine: Engine) -> None:
    from echelon.admission import Queued, find_plan
    from echelon.cli.printing import render
    from echelon.preparation.shipping import check_sending, check_waiting

    job = prepared.job
    check_sending(job, prepared.bundle, engine.traits)
    if settings.name is not None and not settings.replace and job.name in engine.names():
        instead = f"`echelon resume {job.name}` starts it again, " if job.resume else ""
        render.notice(f"there is a run {job.name!r} already; {instead}--replace replaces one that has ended")
    found = find_plan(job, engine, tell=render.notice)
    if isinstance(found, Queued):
        check_waiting(job, prepared.bundle, engine.traits, found.reason)
    render.preview(prepared, found, engine, settings.format or "text")


def _check_maps(maps: Sequence[str]) -> None:
    if maps:
        hint = "it belongs to -f FILE with a Kubeflow job"
        raise InvalidJob("map", maps[0], "has nothing to map", hint=hint)


def _check_ranks(shown: Sequence[int], ranks: int) -> None:
    for rank in shown:
        if rank >= ranks:
            hint = f"they are numbered 0 to {ranks - 1}" if ranks > 1 else "there is only rank 0"
            raise InvalidJob("show-rank", rank, "is not a rank of this run", hint=hint)


_MODEL = re.compile(r"([A-Za-z][\w-]*\d[\w-]*)(?::(\d+))?")  # a GPU as SkyPilot writes it

# What torchrun, mpirun, accelerate, deepspeed and Kubeflow call a flag of ours.
_ELSEWHERE = {
    "--max-restarts": "--restarts",
    "--nnodes": "-n",
    "--np": "-n",
    "--nproc-per-node": "--procs",
    "--num-gpus": "--gpus",
    "--num-machines": "-n",
    "--num-nodes": "-n",
    "--num-processes": "-n",
    "--replicas": "-n",
    "-np": "-n",
}


def _no_such_option(name: str, params: Sequence[click.Parameter]) -> str:
    """What a user who gave a flag that `run` does not have may have meant."""
    import difflib

    name_here = name.replace("_", "-")
    ours = {
        flag.strip("-"): flag for param in params if isinstance(param, click.Option) for flag in param.opts
    }
    near = difflib.get_close_matches(name_here.strip("-"), ours, n=1, cutoff=0.75)
    meant = _ELSEWHERE.get(name_here) or (ours[near[0]] if near else None)
    if meant is not None:
        return f"No such option {name!r}. Did you mean {meant!r}?"
    return f"No such option {name!r}. If it is the script's, it goes after the script."


# Of the flags that are easily put last, those that hardly any script has; and those that a script may have.
_STRAYED = frozenset(("--on", "--namespace", "--dry-run", "--restarts"))
_SHARED = frozenset(("-n", "--workers", "--gpus"))


def _strayed(job: Job, folder: Path) -> list[str]:
    """Flags of ours among the arguments of the script; those that a script may have too count if this one
    does not name them.
    """
    found = [word for word in job.args if word in _STRAYED]
    shared = [word for word in job.args if word in _SHARED]
    if not shared or job.script is None:
        return found
    try:
        text = (folder / job.script).read_text("utf-8", "replace")
    except OSError:
        return found
    return [*found, *(word for word in dict.fromkeys(shared) if not re.search(rf"['\"]{word}['\"]", text))]


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


def settings_of(
    flags: dict[str, Any], words: tuple[str, ...], *, is_command: bool, has_file: bool
) -> Settings:
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
