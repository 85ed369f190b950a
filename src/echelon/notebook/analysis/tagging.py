"""What a form says of a cell, as tags, and back. Pure.

Written are the tags that Kale knows too: `limit:nvidia.com/gpu:1` for GPUs, `numWorkers:N` for workers. Tags
that no field of the form stands for stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from echelon.model.resources import parse_cpus, parse_memory
from echelon.notebook.analysis.cells import CellLine, InvalidNotebook, Tags
from echelon.notebook.analysis.tags import GPU, KINDS, CellTags, Distribution, Kind, read_tag_list
from echelon.values import frozen

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
        return changed  # no other name, or other cells go on being that step
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
