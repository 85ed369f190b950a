"""Kale's tags of a cell, and ours, as values: what a run can have, too, is a setting of the step's run. And
what a form says of a cell, as tags, and back. Pure.

What a tag means is decided here and nowhere else. A tag that is not known is left to a warning: notebooks
carry tags of other tools too. A form writes the tags that Kale knows too: `limit:nvidia.com/gpu:1` for GPUs,
`numWorkers:N` for workers. Tags that no field of the form stands for stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from echelon.model.resources import parse_cpus, parse_memory
from echelon.model.settings import Settings, merge
from echelon.notebook.analysis.cells import Cell, CellLine, InvalidNotebook, Tags
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
_COUNTS = ("workers", "numWorkers", "parameterServers", "numParameterServers", "gpus")
_WORDS = ("step", "block", "prev", "distribute", *_COUNTS)
_LIMITS = ("cpu", "memory", GPU)
_STRATEGIES: dict[Distribution, str] = {
    "auto": "distribute",
    "mirrored": "distribute:MultiWorkerMirroredStrategy",
    "parameter-server": "distribute:ParameterServerStrategy",
    "torch": "distribute:torch",
}


@frozen
class StepOptions:
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
    options: StepOptions = field(default_factory=StepOptions)
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


def merge_options(strong: StepOptions, weak: StepOptions) -> StepOptions:
    """Take what `strong` says, and what `weak` says besides."""
    return StepOptions(
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


def _option(options: StepOptions, tag: str, where: str | CellLine) -> StepOptions | None:
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


@frozen
class Choice:
    """What a cell is. Nothing at all: it goes with the cell before it."""

    kind: Kind | None = None
    steps: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    distribute: Distribution | None = None
    workers: int | None = None
    parameter_servers: int | None = None
    gpus: int | None = None
    cpu: str = ""
    memory: str = ""


def choice_of(tags: Sequence[str]) -> Choice:
    """What tags say, as far as they can be read."""
    found = CellTags()
    readable: list[str] = []
    for tag in tags:
        try:
            found = read_tag_list([*readable, tag], "the tags")
        except InvalidNotebook:
            continue
        readable.append(tag)
    options, settings = found.options, found.options.settings
    return Choice(
        kind=found.kind,
        steps=found.steps,
        after=found.after,
        distribute=options.distribute,
        workers=None if settings.workers is None else int(settings.workers),  # a tag has one number
        parameter_servers=options.parameter_servers,
        gpus=settings.gpus or None,
        cpu=str(settings.cpus or ""),
        memory=str(settings.memory or ""),
    )


def retagged(tags: Sequence[str], choice: Choice, cell: int) -> tuple[str, ...]:
    """The tags of a cell after a choice; raises InvalidJob for one that cannot be, naming the cell."""
    kept = [tag for tag in tags if not _is_of_form(tag)]
    own = [tag for tag in tags if tag not in kept]
    if choice_of(tags) == choice and _can_be_read(own):
        return tuple(tags)  # as it was spelled
    if choice.cpu:
        parse_cpus("limit:cpu", choice.cpu)
    if choice.memory:
        parse_memory("limit:memory", choice.memory)
    word = "block" if any(tag.startswith("block:") for tag in own) else "step"  # some versions know one only
    made = (*dict.fromkeys(_tags_of(choice, word)), *kept)
    read_tag_list(made, CellLine(cell=cell))
    return made


def followed(cells: Tags, cell: int, tags: Iterable[str]) -> Tags:
    """What changes when a cell gets other tags: those of it, and, where that gives a step another name, those
    of the steps that come after it. `cells` are the tags as they were."""
    changed = {cell: tuple(tags)}
    before, now = _names(cells.get(cell, ())), _names(changed[cell])
    gone, come = before - now, now - before
    if len(gone) != 1 or len(come) != 1 or any(gone <= _names(cells[each]) for each in cells if each != cell):
        return changed  # no other name, or other cells are still that step
    for number, had in {**cells, **changed}.items():
        follows = _with_other_name(had, *gone, *come)
        if number == cell or follows != had:
            changed[number] = follows
    return changed


def _with_other_name(tags: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    own = new in _names(tags)  # the step itself; if two became one, it cannot come after itself
    if own:
        return tuple(tag for tag in tags if tag not in (f"prev:{old}", f"prev:{new}"))
    if f"prev:{old}" not in tags:
        return tags
    return tuple(dict.fromkeys(f"prev:{new}" if tag == f"prev:{old}" else tag for tag in tags))


def _names(tags: Iterable[str]) -> set[str]:
    """The steps that a cell is tagged with."""
    pairs = [tag.partition(":") for tag in tags]
    return {name for word, _, name in pairs if word in ("step", "block") and name}


def _tags_of(choice: Choice, word: str) -> Iterator[str]:
    if choice.kind is not None:
        yield choice.kind
        return
    for name in choice.steps:
        yield f"{word}:{name}"
    for name in choice.after:
        yield f"prev:{name}"
    if choice.distribute is not None:
        yield _STRATEGIES[choice.distribute]
        if choice.workers is not None:
            yield f"numWorkers:{choice.workers}"
        if choice.parameter_servers is not None and choice.distribute == "parameter-server":
            yield f"numParameterServers:{choice.parameter_servers}"
    for name, value in zip(_LIMITS, (choice.cpu, choice.memory, choice.gpus), strict=True):
        if value:
            yield f"limit:{name}:{value}"


def _is_of_form(tag: str) -> bool:
    word, _, value = tag.partition(":")
    return tag in KINDS or word in _WORDS or (word == "limit" and value.partition(":")[0] in _LIMITS)


def _can_be_read(tags: Sequence[str]) -> bool:
    try:
        read_tag_list(tags, "the tags")
    except InvalidNotebook:
        return False
    return True
