"""Kale's tags of a cell, and ours, as values: what a run can have, too, is a setting of the step's run.

What a tag means is decided here and nowhere else. A tag that is not known is left to a warning: notebooks
carry tags of other tools too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, Literal

from echelon.model.settings import Settings, merge
from echelon.notebook.analysis.cells import Cell, CellLine, InvalidNotebook
from echelon.values import frozen

Kind = Literal["imports", "functions", "pipeline-parameters", "pipeline-metrics", "skip"]
Distribution = Literal["auto", "mirrored", "parameter-server", "torch"]
KINDS: tuple[Kind, ...] = ("skip", "imports", "functions", "pipeline-parameters", "pipeline-metrics")
GPU = "nvidia.com/gpu"
_STEP_NAME = re.compile(r"[_a-z][_a-z0-9]*")
_DISTRIBUTIONS: dict[str, Distribution] = {
    "": "auto",
    "multiworkermirroredstrategy": "mirrored",
    "parameterserverstrategy": "parameter-server",
    "torch": "torch",
    "ddp": "torch",
}
_SWITCH = {"enabled": True, "disabled": False}


@frozen
class Options:
    """What tags say of a step beside its name and order: settings of its run, and what only steps have. None
    and empty: nothing was said.
    """

    settings: Settings = field(default_factory=Settings)
    secrets: tuple[tuple[str, str, str], ...] = ()  # a Secret's name, its key, the variable
    cache: bool | None = None
    distribute: Distribution | None = None
    parameter_servers: int | None = None


@frozen
class CellTags:
    """The tags of one cell."""

    kind: Kind | None = None
    steps: tuple[str, ...] = ()
    after: tuple[str, ...] = ()  # the steps that `prev:` names
    options: Options = field(default_factory=Options)
    unknown: tuple[str, ...] = ()


def read_tags(cell: Cell) -> CellTags:
    """What a cell's tags mean; raises InvalidNotebook for one whose value is wrong."""
    return read_tag_list(cell.tags, CellLine(cell=cell.number))


def read_tag_list(tags: Iterable[str], where: str | CellLine) -> CellTags:
    """What tags mean; `where` is where they stand, in messages."""
    found = CellTags()
    for tag in tags:
        found = _add(found, tag, where)
    if found.options.settings.workers is None and found.options.parameter_servers is None:
        return found
    return replace(
        found, options=replace(found.options, distribute=found.options.distribute or _implied(found))
    )


def merge_options(strong: Options, weak: Options) -> Options:
    """Take what `strong` says, and what `weak` says besides."""
    return Options(
        settings=merge(strong.settings, weak.settings),
        secrets=tuple(dict.fromkeys((*strong.secrets, *weak.secrets))),
        cache=weak.cache if strong.cache is None else strong.cache,
        distribute=strong.distribute or weak.distribute,
        parameter_servers=strong.parameter_servers or weak.parameter_servers,
    )


def _implied(tags: CellTags) -> Distribution:
    return "parameter-server" if tags.options.parameter_servers else "auto"


def _add(found: CellTags, tag: str, where: str | CellLine) -> CellTags:
    word, _, value = tag.partition(":")
    if tag in KINDS:
        if found.kind not in (None, tag):
            raise InvalidNotebook(where, f"it is tagged both {found.kind} and {tag}", hint="keep one of them")
        return replace(found, kind=tag)
    # Kale's editor leaves `block:` and `prev:` with nothing after them.
    if word in ("step", "block"):
        return replace(found, steps=(*found.steps, _step_name(value, where))) if value else found
    if word == "prev":
        return replace(found, after=(*found.after, _step_name(value, where))) if value else found
    options = _option(found.options, tag, where)
    if options is None:
        return replace(found, unknown=(*found.unknown, tag))
    return replace(found, options=options)


def _option(options: Options, tag: str, where: str | CellLine) -> Options | None:
    """The options with what a tag says; None for a tag that is not known."""
    word, _, value = tag.partition(":")
    match word:
        case "secret":
            parts = tuple(value.split(":"))
            if len(parts) != 3 or not all(parts):
                hint = "secret:SECRET:KEY:VARIABLE"
                raise InvalidNotebook(where, f"the tag {tag!r} names no variable", hint=hint)
            return replace(options, secrets=(*options.secrets, (parts[0], parts[1], parts[2])))
        case "cache" | "report":
            if value not in _SWITCH:
                raise InvalidNotebook(where, f"the tag {tag!r} is not known", hint=f"{word}:enabled|disabled")
            return replace(options, cache=_SWITCH[value]) if word == "cache" else options
        case "distribute":
            return replace(options, distribute=_distribution(value, where))
        case "numParameterServers" | "parameterServers":
            return replace(options, parameter_servers=_count(tag, value, where, least=0) or None)
    said = _setting(word, tag, value, where)
    return None if said is None else replace(options, settings=merge(Settings(**said), options.settings))


def _setting(word: str, tag: str, value: str, where: str | CellLine) -> dict[str, Any] | None:
    """What a tag says that is a setting of any run; None for any other."""
    match word:
        case "limit" | "annotation" | "label":
            key, _, text = value.partition(":")
            if not key or not text:
                raise InvalidNotebook(where, f"the tag {tag!r} has no value", hint=f"as in {word}:KEY:VALUE")
            return {word: {key: text}} if word != "limit" else _limit(key, text, tag, where)
        case "image":
            return {"image": value or None}
        case "numWorkers" | "workers":
            return {"workers": _count(tag, value, where)}
        case "gpus":
            return {"gpus": _count(tag, value, where, least=0)}
    return None


def _limit(key: str, text: str, tag: str, where: str | CellLine) -> dict[str, Any]:
    number = int(text) if text.isascii() and text.isdecimal() else None
    if key == GPU and number is None:
        raise InvalidNotebook(where, f"the tag {tag!r} is not a number", hint=f"limit:{GPU}:1")
    named: dict[str, dict[str, Any]] = {
        "cpu": {"cpus": text},
        "memory": {"memory": text},
        GPU: {"gpus": number},
    }
    return named.get(key) or {"resource": {key: text if number is None else number}}


def _step_name(text: str, where: str | CellLine) -> str:
    if not _STEP_NAME.fullmatch(text):
        near = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
        hint = f"small letters, digits and _, such as {'step_' * near[:1].isdigit()}{near or 'train'}"
        raise InvalidNotebook(where, f"{text!r} cannot name a step", hint=hint)
    return text


def _distribution(text: str, where: str | CellLine) -> Distribution:
    name = text.rpartition(".")[2].lower()  # also as tf.distribute.experimental.MultiWorkerMirroredStrategy
    if name not in _DISTRIBUTIONS:
        hint = "MultiWorkerMirroredStrategy, ParameterServerStrategy or torch"
        raise InvalidNotebook(where, f"distribute:{text} is not known", hint=hint)
    return _DISTRIBUTIONS[name]


def _count(tag: str, text: str, where: str | CellLine, least: int = 1) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise InvalidNotebook(where, f"the tag {tag!r} needs a number of {least} or more", hint="workers:2")
    return int(text)
