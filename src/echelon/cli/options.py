"""Options that several commands share, made from the declarations in `model/settings.py`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from shlex import quote
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from echelon.cli.help import Group, SectionedOption
from echelon.errors import InvalidJob
from echelon.model.former import FORMER, HIDDEN, SWITCHES
from echelon.model.settings import OF_STEPS, ON_KUBERNETES, Settings
from echelon.values import types_of

if TYPE_CHECKING:
    from echelon.engines.base import Engine
    from echelon.errors import EchelonError
    from echelon.handle import Run
    from echelon.model.run import RunRef
    from echelon.preparation.sources import Target

F = TypeVar("F", bound=Callable[..., Any])
_COMPLETED = {"dir": "dir", "file": "file", "pattern": "file", "program": "file"}
RAW_HELP = "lines exactly as they were written, with every escape sequence in them"
MAP = click.Option(
    ["--map", "maps"],
    multiple=True,
    metavar="/PATH=FOLDER",
    help="with a Kubeflow job on this machine: what a path of its pods is here",
)
GROUPS = (
    Group(
        "What to run",
        ("files", "module", "name", "env"),
        ("overrides", "maps", "framework", "secret", "python", "snapshot", "include"),
    ),
    Group(
        "How many",
        ("workers", "procs", "gpus", "total_gpus", "cpus", "memory"),
        ("gpu_type", "shares", "settle", "resource", "roles"),
    ),
    Group(
        "Where and when",
        ("on", "detach", "dry_run"),
        ("priority", "queue_timeout", "no_wait", "force"),
    ),
    Group(
        "Results and output",
        ("results", "reuse_results"),
        ("replace", "metric_pattern", "track", "format", "raw", "show_rank"),
    ),
    Group("Failures", ("restarts", "timeout"), ("stall", "grace")),
    Group(ON_KUBERNETES, ("image", "namespace", "mount", "output", "checkpoints")),
)
"""How the help of `run` is arranged; the other settings of pods follow under the last heading."""
_SUGGESTION = 2.0  # seconds that a shell's suggestion may take


def setting_options(*, everywhere: bool, settings: type[Any] = Settings) -> list[SectionedOption]:
    """The options of `run` that only it has, or those that every command has."""
    hints = types_of(settings)
    options = [
        _option(field, hints[field.name])
        for field in dataclasses.fields(settings)
        if field.metadata["flag"] is not False and field.metadata["everywhere"] is everywhere
    ]
    return [*options, *former_options([option.name for option in options])]


def former_options(names: Collection[str | None]) -> list[SectionedOption]:
    """Hidden flags by the names that these settings had before; `settings_from` says the names of now."""
    return [
        SectionedOption(
            [f"--{former.replace('_', '-')}", former],
            section=None,
            hidden=True,
            is_flag=former in SWITCHES,
            default=None,
        )
        for former, (now, _) in FORMER.items()
        if now in names
    ]


def target_options(function: F) -> F:
    """Add `-o`, `--on`, `--context` and `--namespace`, which every command has."""
    return target_options_with()(function)


def target_options_with(*formats: str) -> Callable[[F], F]:
    """The same for a command that can print in further formats."""

    def add(function: F) -> F:
        for option in reversed(setting_options(everywhere=True)):
            kind, text = option.type, option.help
            if option.name == "format" and isinstance(kind, click.Choice) and formats:
                first, *others = kind.choices
                kind = click.Choice([first, *formats, *others])
                text = f"how to print: {', '.join([first, *formats, *others[:-1]])} or {others[-1]}"
            click.option(*option.opts, option.name or "", type=kind, metavar=option.metavar, help=text)(
                function
            )
        return function

    return add


def step_options() -> list[click.Parameter]:
    """Those flags of `run` that hold for all steps of a notebook in a cluster."""
    options = [option for option in setting_options(everywhere=False) if option.name in OF_STEPS]
    return [*options, *former_options(OF_STEPS)]


def where(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Of what `target_options` has read, where to look; as keywords of `echelon.attach`."""
    return {name: options.get(name) for name in ("on", "context", "namespace")}


def target_of(options: Mapping[str, Any]) -> Target:
    """The same as one value."""
    from echelon.preparation.sources import Target

    return Target(**where(options))


def place_of(options: Mapping[str, Any]) -> str:
    """The same as the user has typed it, for a command that is suggested."""
    return "".join(f" --{name} {quote(str(value))}" for name, value in where(options).items() if value)


def find_run(name: str | None, options: Mapping[str, Any], *, keep_stdin: bool = False) -> Run:
    """The run that a command means: the one named, or the newest of this folder. A notice
    says which, unless it was named.
    """
    from echelon.handle import Run

    return Run(*find_engine(name, options, keep_stdin=keep_stdin))


def find_engine(
    name: str | None, options: Mapping[str, Any], *, keep_stdin: bool = False
) -> tuple[RunRef, Engine]:
    """The same as an address, and the engine that has it."""
    from echelon.cli.printing.render import notice
    from echelon.finding import find

    as_text = (options.get("format") or "text") == "text"
    tell = notice if as_text else lambda _note: None
    return find(name, target_of(options), tell, keep_stdin=keep_stdin)


def find_runs(names: Sequence[str], options: Mapping[str, Any]) -> tuple[list[Run], EchelonError | None]:
    """The runs of those names, and what is wrong with the first that is none: the others are not kept waiting
    for it.
    """
    from echelon.errors import EchelonError

    found: dict[str, Run] = {}
    trouble: EchelonError | None = None
    for name in names:
        try:
            run = find_run(name, options)
            found.setdefault(run.uri, run)
        except EchelonError as error:
            trouble = trouble or error
    return list(found.values()), trouble


def complete_runs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of runs, for the shell: those that come within a moment. Once a run that is made of others is
    named, its steps too, as NAME/STEP.
    """
    import threading

    found: list[str] = []

    def look() -> None:
        from echelon.children import steps_in
        from echelon.errors import EchelonError
        from echelon.preparation.sources import engine_at

        with contextlib.suppress(EchelonError, OSError):  # the command itself reports what is wrong
            name = incomplete.partition("/")[0]
            found.extend(f"{name}/{step}" for step in steps_in(name))
            engine = engine_at(target_of(ctx.params))
            found.extend(engine.names())
            if engine.traits.remote:
                from echelon.children import names_of_parents

                found.extend(names_of_parents(engine))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(_SUGGESTION)
    return [CompletionItem(name) for name in dict.fromkeys(found) if name.startswith(incomplete)]


def _option(field: dataclasses.Field[Any], hint: Any) -> SectionedOption:
    """The flag of a setting: how its value is written follows from its type."""
    about = field.metadata
    flag = f"--{about['flag'] if isinstance(about['flag'], str) else field.name.replace('_', '-')}"
    names = [*([about["short"]] if about["short"] else []), flag, field.name]
    attributes: dict[str, Any] = {"help": about["help"], "section": about["section"]}
    attributes["hidden"] = field.name in HIDDEN
    kinds = [kind for kind in _members(hint) if kind is not NoneType]
    kind = get_origin(kinds[0]) or kinds[0]
    if kind is bool:
        return SectionedOption(names, is_flag=True, default=None, **attributes)
    if kind is Literal:
        return SectionedOption(names, type=click.Choice(get_args(kinds[0])), **attributes)
    if kind is Mapping:
        counts = _members(get_args(kinds[0])[1])[0] is int
        metavar = "NAME=N" if counts else "KEY=VALUE"
        pairs = _pairs(flag, field, counts=counts)
        return SectionedOption(names, multiple=True, metavar=metavar, callback=pairs, **attributes)
    if kind is Sequence:
        attributes |= {"multiple": True}
    number = kinds == [int]
    return SectionedOption(
        names,
        type=int if number else str,
        metavar="N" if number else about["metavar"],
        shell_complete=_completion(about["path"], about["words"]),
        **attributes,
    )


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)


def _pairs(
    flag: str, field: dataclasses.Field[Any], *, counts: bool
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, Any] | None]:
    """What a flag that comes several times gives as names and values, as a job file has them."""
    hint = f"{flag} {'NAME=N' if counts else 'KEY=VALUE'}"
    if field.metadata["hint"]:
        hint += f"; {field.metadata['hint']}"

    def read(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any] | None:
        pairs: dict[str, Any] = {}
        for text in texts:
            key, separator, value = text.partition("=")
            if not separator or not key:
                raise InvalidJob(field.name, text, "is not KEY=VALUE", hint=hint)
            if counts and not (value.isascii() and value.isdecimal()):
                raise InvalidJob(f"{field.name} {key}", value, "is not a whole number", hint=hint)
            pairs[key] = int(value) if counts else value
        return pairs or None

    return read


def _completion(path: str | None, words: Sequence[str]) -> Callable[..., list[CompletionItem]] | None:
    """Let the shell complete the options that are paths, or one of some words."""
    if words:
        return lambda _ctx, _param, begun: [CompletionItem(each) for each in words if each.startswith(begun)]
    if path not in _COMPLETED:
        return None
    return lambda _ctx, _param, begun: [CompletionItem(begun, type=_COMPLETED[path])]
