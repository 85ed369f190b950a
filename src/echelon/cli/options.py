"""Options that several commands share, made from the one vocabulary in `model/settings.py`."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

from echelon.errors import InvalidJob
from echelon.model.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
_PAIRS = ("env", "resource", "roles", "node_selector")
_LISTS = ("secret", "include", "pull_secret", "mount", "toleration", "pip", "collect")
_METAVARS = {
    "name": "NAME", "module": "MODULE", "gpu_type": "MODEL", "cpus": "N[:N]", "memory": "SIZE[:SIZE]",
    "secret": "NAME[=@FILE]", "python": "FILE", "timeout": "TIME", "results": "DIR", "include": "PATTERN",
    "context": "NAME", "namespace": "NAME", "image": "IMAGE", "pull_secret": "NAME",
    "mount": "KIND:SOURCE:/PATH[:ro]", "toleration": "KEY[=VALUE][:EFFECT]", "service_account": "NAME",
    "priority_class": "NAME", "shm": "SIZE", "code": "pvc:NAME/PATH", "pip": "PACKAGE",
    "requirements": "FILE", "output": "VOLUME", "linger": "TIME", "ttl": "TIME", "collect": "PATH",
}  # fmt: skip
_PATHS = {"results": "dir", "python": "file", "include": "file", "requirements": "file"}
_SUGGESTION = 2.0  # seconds that a shell's suggestion may take
_SECTIONS = {field.name: field.metadata.get("section") for field in dataclasses.fields(Settings)}


class SectionedCommand(click.Command):
    """A command whose help lists the settings of each section under its own heading."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that stand in no section, then each section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                sections.setdefault(_SECTIONS.get(param.name or "") or "Options", []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


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


def where(target: Mapping[str, str | None]) -> dict[str, str | None]:
    """Where the command is to look: what `target_options` has heard, or what the folder's project says."""
    from echelon.submit import where_to_look

    on, context, namespace = where_to_look(target["on"], target["context"], target["namespace"])
    return {"on": on, "context": context, "namespace": namespace}


def complete_runs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of runs, for the shell."""
    import os

    on = ctx.params.get("on") or os.environ.get("ECHELON_ON") or "local"
    names = _names_in_cluster(ctx.params) if on == "k8s" else _names_here()
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _names_here() -> list[str]:
    from echelon.engines.local.store import RunStore
    from echelon.errors import EchelonError

    try:
        return list(RunStore().names())
    except EchelonError:
        return []  # the command itself will say what is wrong


def _names_in_cluster(said: Mapping[str, Any]) -> list[str]:
    """Those of a cluster that answers at once; nobody waits for a shell's suggestion."""
    import threading

    found: list[str] = []

    def look() -> None:
        from echelon.engines.kubernetes.engine import KubernetesEngine
        from echelon.engines.kubernetes.follow.view import run_names
        from echelon.errors import EchelonError

        engine = KubernetesEngine(context=said.get("context"), namespace=said.get("namespace"))
        with contextlib.suppress(EchelonError):
            found.extend(run_names(engine.api))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(_SUGGESTION)
    return list(found)


def _option(field: dataclasses.Field[Any], hint: Any) -> click.Option:
    flag = field.metadata.get("flag") or field.name.replace("_", "-")
    names = [*([field.metadata["short"]] if "short" in field.metadata else []), f"--{flag}", field.name]
    text = field.metadata["help"]
    if field.name in _PAIRS:
        texts = field.name in ("env", "node_selector")
        return click.Option(
            names,
            multiple=True,
            metavar="KEY=VALUE" if texts else "NAME=N",
            help=text,
            callback=_node_labels if field.name == "node_selector" else None,
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


def _node_labels(
    _ctx: click.Context, _param: click.Parameter, said: tuple[str, ...]
) -> dict[str, str] | None:
    """The labels of `--node-selector`, which a file writes as names and values."""
    labels = {}
    for text in said:
        key, separator, value = text.partition("=")
        if not separator or not key:
            hint = "--node-selector KEY=VALUE; `kubectl get nodes --show-labels` shows what nodes have"
            raise InvalidJob("node_selector", text, "is not KEY=VALUE", hint=hint)
        labels[key] = value
    return labels or None


def _completion(name: str) -> Callable[..., list[CompletionItem]] | None:
    """Let the shell complete the options that are paths."""
    if name not in _PATHS:
        return None
    return lambda _ctx, _param, begun: [CompletionItem(begun, type=_PATHS[name])]
