"""Options that several commands share, made from the one vocabulary in `model/settings.py`."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

from echelon.model.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
_PAIRS = ("env", "resource", "roles")
_LISTS = ("secret", "include")
_METAVARS = {
    "name": "NAME", "module": "MODULE", "gpu_type": "MODEL", "cpus": "N[:N]", "memory": "SIZE[:SIZE]",
    "secret": "NAME[=@FILE]", "python": "FILE", "timeout": "TIME", "results": "DIR", "include": "PATTERN",
    "context": "NAME", "namespace": "NAME",
}  # fmt: skip
_PATHS = {"results": "dir", "python": "file", "include": "file"}


def setting_options(*, everywhere: bool) -> list[click.Option]:
    """The options of `run` that only it has, or those that every command has."""
    hints = get_type_hints(Settings)
    return [
        _option(field, hints[field.name])
        for field in dataclasses.fields(Settings)
        if field.metadata.get("flag") is not False and bool(field.metadata.get("everywhere")) is everywhere
    ]


def target_options(function: F) -> F:
    """Add `-o`, `--on`, `--context` and `--namespace`, which every command has."""
    for option in reversed(setting_options(everywhere=True)):
        click.option(
            *option.opts, option.name or "", type=option.type, metavar=option.metavar, help=option.help
        )(function)
    return function


def complete_runs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of runs, for the shell."""
    from echelon.engines.local.store import RunStore
    from echelon.errors import EchelonError

    try:
        return [CompletionItem(name) for name in RunStore().names() if name.startswith(incomplete)]
    except EchelonError:
        return []  # the command itself will say what is wrong


def _option(field: dataclasses.Field[Any], hint: Any) -> click.Option:
    flag = field.metadata.get("flag") or field.name.replace("_", "-")
    names = [*([field.metadata["short"]] if "short" in field.metadata else []), f"--{flag}", field.name]
    text = field.metadata["help"]
    if field.name in _PAIRS:
        return click.Option(
            names, multiple=True, metavar="KEY=VALUE" if field.name == "env" else "NAME=N", help=text
        )
    if field.name in _LISTS:
        return click.Option(
            names,
            multiple=True,
            metavar=_METAVARS[field.name],
            help=text,
            shell_complete=_completion(field.name),
        )
    kinds = [
        kind
        for kind in (get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,))
        if kind is not type(None)
    ]
    if kinds == [bool]:
        return click.Option(names, is_flag=True, default=None, help=text)
    choices = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), None)
    if choices:
        return click.Option(names, type=click.Choice(choices), help=text)
    return click.Option(
        names,
        type=int if kinds == [int] else str,
        metavar="N" if kinds == [int] else _METAVARS.get(field.name, "TEXT"),
        help=text,
        shell_complete=_completion(field.name),
    )


def _completion(name: str) -> Callable[..., list[CompletionItem]] | None:
    """Let the shell complete the options that are paths."""
    if name not in _PATHS:
        return None
    return lambda _ctx, _param, begun: [CompletionItem(begun, type=_PATHS[name])]
