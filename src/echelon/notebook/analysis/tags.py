"""Kale's tags of a cell, and ours, as values.

What a tag means is decided here and nowhere else. A tag that is not known is left to a warning: notebooks
carry tags of other tools too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any, Literal

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
    """What tags say of a step beside its name and order. None and empty: nothing was said."""

    limits: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[tuple[str, str, str], ...] = ()  # a Secret's name, its key, the variable
    image: str | None = None
    cache: bool | None = None
    distribute: Distribution | None = None
    workers: int | None = None
    parameter_servers: int | None = None
    gpus: int | None = None


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
    if found.options.workers is None and found.options.parameter_servers is None:
        return found
    return replace(
        found, options=replace(found.options, distribute=found.options.distribute or _implied(found))
    )


def merge_options(strong: Options, weak: Options) -> Options:
    """Take what `strong` says, and what `weak` says besides."""
    merged: dict[str, Any] = {}
    for each in fields(Options):
        mine, theirs = getattr(strong, each.name), getattr(weak, each.name)
        if isinstance(mine, Mapping):
            merged[each.name] = {**theirs, **mine}
        elif isinstance(mine, tuple):
            merged[each.name] = tuple(dict.fromkeys((*mine, *theirs)))
        else:
            merged[each.name] = theirs if mine is None else mine
    return Options(**merged)


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
        case "limit" | "annotation" | "label":
            key, _, text = value.partition(":")
            if not key or not text:
                raise InvalidNotebook(where, f"the tag {tag!r} has no value", hint=f"as in {word}:KEY:VALUE")
            if (word, key) == ("limit", GPU) and not (text.isascii() and text.isdecimal()):
                raise InvalidNotebook(where, f"the tag {tag!r} names no number", hint=f"limit:{GPU}:1")
            name = f"{word}s"
            added: dict[str, Any] = {name: {**getattr(options, name), key: text}}
            return replace(options, **added)
        case "secret":
            parts = tuple(value.split(":"))
            if len(parts) != 3 or not all(parts):
                hint = "secret:SECRET:KEY:VARIABLE"
                raise InvalidNotebook(where, f"the tag {tag!r} names no variable", hint=hint)
            return replace(options, secrets=(*options.secrets, (parts[0], parts[1], parts[2])))
        case "image":
            return replace(options, image=value or None)
        case "cache" | "report":
            if value not in _SWITCH:
                raise InvalidNotebook(where, f"the tag {tag!r} is not known", hint=f"{word}:enabled|disabled")
            return replace(options, cache=_SWITCH[value]) if word == "cache" else options
        case "distribute":
            return replace(options, distribute=_distribution(value, where))
        case "numWorkers" | "workers":
            return replace(options, workers=_count(tag, value, where))
        case "numParameterServers" | "parameterServers":
            return replace(options, parameter_servers=_count(tag, value, where, least=0) or None)
        case "gpus":
            return replace(options, gpus=_count(tag, value, where, least=0))
    return None


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
