"""What is asked of a sweep, beside what a trial runs: from a job file and from the command line, which is the
stronger. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace

from echelon.errors import InvalidJob
from echelon.model.program import Objective
from echelon.model.settings import SweepSettings, Text
from echelon.sweeps.objective import objective_of
from echelon.sweeps.search import Search, search_of, trials_to_come
from echelon.sweeps.spaces import Dimension, Trial, array, listed, read_space, trials
from echelon.values import frozen


@frozen
class Request:
    """What the user asks for."""

    trials: tuple[Trial, ...]
    objective: Objective | None = None
    parallel: int | None = None
    fail_fast: bool = False
    early_stop: bool = False
    search: Search | None = None  # chooses the values of the trials, which have none yet


def merge(strong: SweepSettings, weak: SweepSettings | None) -> SweepSettings:
    """What the command line gives, and what the job file gives besides."""
    if weak is None:
        return strong
    if strong.minimize or strong.maximize:
        weak = replace(weak, minimize=None, maximize=None)
    given = {each.name: getattr(strong, each.name) for each in fields(strong)}
    return replace(weak, **{name: value for name, value in given.items() if value is not None})


def request_of(asked: SweepSettings, words: Sequence[str], read: Callable[[str], str]) -> Request:
    """The trials, and how they are run. The `words` of the command line stand for parameters of the job file
    that have the same names; `read` has the text of a file.
    """
    for name in ("seeds", "trials", "parallel"):
        count = getattr(asked, name)
        if count is not None and count < 1:
            raise InvalidJob(name, count, "is less than 1", hint="leave it out, or give a number from 1 on")
    space, seed = space_of(asked, words, read), asked.seed or 0
    objective = objective_of(asked.minimize, asked.maximize, asked.value or "last")
    search = search_of(asked.search, space, seed, repeats=asked.seeds, objective=objective)
    return Request(
        trials=trials(space, asked.trials, seed, asked.seeds)
        if search is None
        else trials_to_come(asked.trials),
        search=search,
        objective=objective,
        parallel=asked.parallel,
        fail_fast=bool(asked.fail_fast),
        early_stop=bool(asked.early_stop),
    )


def space_of(asked: SweepSettings, words: Sequence[str], read: Callable[[str], str]) -> tuple[Dimension, ...]:
    """The parameters, in the order in which they stand in the file and on the command line."""
    said = read_space(words, read)
    names = {name for each in said for name in each.names}
    kept = {name: values for name, values in (asked.space or {}).items() if name not in names}
    numbers = () if asked.array is None else (array(asked.array),)
    return (*_written(kept.items(), read), *said, *numbers)


def _written(
    space: Iterable[tuple[str, Sequence[Text] | Text]], read: Callable[[str], str]
) -> Iterator[Dimension]:
    for name, values in space:
        if isinstance(values, Sequence) and not isinstance(values, str):
            yield listed(name, [str(value) for value in values])
        else:
            yield from read_space([f"{name}={values}"], read)
