"""The trials of a sweep, from what a user writes of its parameters. Pure.

A word is `NAME=VALUE,VALUE`, `NAME=LOW..HIGH` or `@FILE.csv`. All of them together are a grid, of which every
combination is a trial, or, with a number of trials, what these are drawn from at random. A trial's values
stand in the job that it runs: for `{name}` in its arguments, and as ECHELON_PARAM_NAME in its environment."""

from __future__ import annotations

import csv
import io
import itertools
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from echelon.errors import InvalidJob
from echelon.model.job import Job, Role
from echelon.values import frozen

MOST_TRIALS = 10_000  # more is a slip of the hand
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILLED_IN = ("output", "run")  # words in braces that every run has
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(\d+))?")
_WHOLE = re.compile(r"[+-]?\d+")
_DECADE = 10.0  # a range that spans one lies evenly in its logarithm
_DIGITS = 6  # of a value that is computed
_TRIES = 100  # draws of a trial that has not been drawn before, where there may be no other left
PARAM = "ECHELON_PARAM_"  # before the name of a parameter, in the environment of its script
PARAMS = "ECHELON_PARAMS"  # all of them as a JSON object, for a function


@frozen
class Choices:
    """Values to choose from: of one parameter, or of several whose values belong together, as a row has
    them.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@frozen
class Interval:
    """A parameter that can have any value between two numbers."""

    name: str
    low: float
    high: float
    log: bool = False  # values lie evenly in their logarithm

    @property
    def names(self) -> tuple[str, ...]:
        """As of choices."""
        return (self.name,)


Dimension = Choices | Interval


@frozen
class Trial:
    """One of the runs of a sweep: its number, and the values that its parameters have."""

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)  # the same for a function, as JSON has them


def read_space(words: Sequence[str], read: Callable[[str], str]) -> tuple[Dimension, ...]:
    """What the words mean; `read` has the text of a file."""
    return tuple(_dimension(word, read) for word in words)


def listed(name: str, values: Sequence[str]) -> Choices:
    """A parameter with these values."""
    if not values:
        raise InvalidJob(name, "[]", "has no values", hint="as in [1e-4, 1e-3]")
    return _choices(name, values)


def array(text: str) -> Choices:
    """`--array 0..99` or `0,3,7`: the parameter `index`."""
    found = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if found:
        return _whole_numbers("index", text, int(found[1]), int(found[2]), None)
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise InvalidJob("array", text, "is not a list of whole numbers", hint="as in 0..99, or 0,3,7")
    return _choices("index", text.split(","))


def trials(
    space: Sequence[Dimension], count: int | None = None, seed: int = 0, repeats: int | None = None
) -> tuple[Trial, ...]:
    """All combinations, the last parameter changing first; or so many that are drawn at random, the same for
    the same seed. With `repeats` each of them so often, with the parameter `seed` from 0 on.
    """
    repeated = Choices(names=("seed",), rows=tuple((str(each),) for each in range(repeats or 0)))
    check_names([name for each in (*space, *([repeated] if repeats else ())) for name in each.names])
    if not space and not repeats:
        raise InvalidJob("sweep", None, "has no parameter", hint="as in lr=1e-4,1e-3, or --array 0..9")
    rows = list(_grid(space) if count is None else _drawn(space, count, seed))
    if repeats:
        _check_count(len(rows) * repeats)
        rows = [{**row, "seed": each} for row in rows for (each,) in repeated.rows]
    return tuple(Trial(name=str(number), values=row) for number, row in enumerate(rows, 1))


def _dimension(word: str, read: Callable[[str], str]) -> Dimension:
    if word.startswith("@"):
        return _table(word[1:], read(word[1:]))
    name, separator, text = word.partition("=")
    if not separator or not text:
        hint = "NAME=VALUE,VALUE, NAME=LOW..HIGH or @FILE.csv; what is to run comes after --"
        raise InvalidJob("sweep", word, "says no values", hint=hint)
    if found := _RANGE.fullmatch(text):
        return _range(name, text, *found.groups())
    if re.match(rf"{_NUMBER}\.\.", text) or re.search(rf"\.\.{_NUMBER}$", text):
        raise InvalidJob(name, text, "is not a range", hint="two numbers, as in 1e-5..1e-1, or 1e-5..1e-1:5")
    return _choices(name, next(csv.reader([text])))


def _choices(name: str, values: Sequence[str]) -> Choices:
    for each in values:
        if not each:
            raise InvalidJob(name, ",".join(values), "has an empty value", hint="as in lr=1e-4,1e-3")
        if values.count(each) > 1:
            raise InvalidJob(name, each, "is there twice", hint="--seeds N repeats every trial")
    return Choices(names=(name,), rows=tuple((each,) for each in values))


def _range(name: str, text: str, low: str, high: str, count: str | None) -> Dimension:
    """Whole numbers if both ends are, but for 0..1, which is what a rate or a share lies between."""
    first, last = float(low), float(high)
    if not (math.isfinite(first) and math.isfinite(last) and first < last):
        raise InvalidJob(name, text, "is not a range", hint="the lower end comes first, as in 2..8")
    number = None if count is None else int(count)
    if number is not None and number < 2:
        raise InvalidJob(name, text, "has not two values", hint=f"as in {low}..{high}:5")
    if _WHOLE.fullmatch(low) and _WHOLE.fullmatch(high) and (low, high) != ("0", "1"):
        return _whole_numbers(name, text, int(low), int(high), number)
    between = Interval(name=name, low=first, high=last, log=_in_decades(first, last))
    if number is None:
        return between
    inner = [_written(_at(between, place / (number - 1))) for place in range(1, number - 1)]
    return _choices(name, list(dict.fromkeys([low, *inner, high])))


def _whole_numbers(name: str, text: str, low: int, high: int, count: int | None) -> Choices:
    if low > high:
        raise InvalidJob(name, text, "is not a range", hint="the lower end comes first, as in 2..8")
    if count is None:
        _check_count(high - low + 1)
        return Choices(names=(name,), rows=tuple((str(each),) for each in range(low, high + 1)))
    between = Interval(name=name, low=low, high=high, log=_in_decades(low, high))
    places = (round(_at(between, place / (count - 1))) for place in range(count))
    return _choices(name, list(dict.fromkeys(map(str, places))))


def _table(source: str, text: str) -> Choices:
    """A file whose first line names the parameters, and each further one is a row of values."""
    lines = [row for row in csv.reader(io.StringIO(text)) if row]
    if len(lines) < 2:
        hint = "its first line names the parameters, each further line has a trial's values"
        raise InvalidJob("sweep", f"@{source}", "has no trials", hint=hint)
    names, rows = tuple(name.strip() for name in lines[0]), lines[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            problem = f"has {len(row)} values in row {number}, and names {len(names)} parameters"
            raise InvalidJob("sweep", f"@{source}", problem, hint="quote a value with a comma in it")
    return Choices(names=names, rows=tuple(tuple(value.strip() for value in row) for row in rows))


def check_names(names: Sequence[str]) -> None:
    """Raise for what cannot be the names of parameters together."""
    for name in names:
        if not _NAME.fullmatch(name):
            hint = f"letters, digits and _, as in {re.sub(r'[^A-Za-z0-9_]', '_', name) or 'lr'}=..."
            raise InvalidJob("sweep", name, "is not a parameter's name", hint=hint)
        if name in _FILLED_IN:
            raise InvalidJob("sweep", name, "is filled in by echelon", hint=f"call it my_{name}")
        if sum(each.upper() == name.upper() for each in names) > 1:
            hint = "each parameter once; --array is the parameter index, --seeds the parameter seed"
            raise InvalidJob("sweep", name, "is there twice", hint=hint)


def _check_count(count: int) -> None:
    if count > MOST_TRIALS:
        hint = f"at most {MOST_TRIALS}; --trials N draws so many at random"
        raise InvalidJob("sweep", count, "are too many trials", hint=hint)


def _grid(space: Sequence[Dimension]) -> Iterator[dict[str, str]]:
    choices: list[Choices] = []
    for each in space:
        if isinstance(each, Interval):
            ends = f"{_written(each.low)}..{_written(each.high)}"
            hint = f"{ends}:5 is five of them; --trials 20 draws twenty trials at random"
            raise InvalidJob(each.name, ends, "has no end of values", hint=hint)
        choices.append(each)
    _check_count(math.prod(len(each.rows) for each in choices))
    names = [name for each in choices for name in each.names]
    for rows in itertools.product(*(each.rows for each in choices)):
        yield dict(zip(names, itertools.chain.from_iterable(rows), strict=True))


def _drawn(space: Sequence[Dimension], count: int, seed: int) -> Iterator[dict[str, str]]:
    _check_count(count)
    source = random.Random(seed)  # noqa: S311 - no secret
    seen: set[tuple[str, ...]] = set()
    for _ in range(count):
        for _try in range(_TRIES):
            row: dict[str, str] = {}
            for each in space:
                if isinstance(each, Interval):
                    row[each.name] = _written(_at(each, source.random()))
                else:
                    row.update(zip(each.names, source.choice(each.rows), strict=True))
            if tuple(row.values()) not in seen:
                break
        else:
            return  # there is no other, or next to none
        seen.add(tuple(row.values()))
        yield row


def _in_decades(low: float, high: float) -> bool:
    return low > 0 and high / low >= _DECADE


def _at(between: Interval, part: float) -> float:
    if between.log:
        return between.low * math.exp(part * math.log(between.high / between.low))
    return between.low + part * (between.high - between.low)


def _written(value: float) -> str:
    return f"{value:.{_DIGITS}g}"


def filled(job: Job, values: Mapping[str, str]) -> Job:
    """The job with the values of a trial. What else stands in braces is the user's."""
    words = re.compile("|".join(re.escape(f"{{{name}}}") for name in values))

    def fill(text: str) -> str:
        return words.sub(lambda found: values[found[0][1:-1]], text)

    def fill_all(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(fill, texts))

    env = {name: fill(text) for name, text in job.env.items()}
    return replace(
        job,
        args=fill_all(job.args),
        command=fill_all(job.command),
        env={**env, **{f"{PARAM}{name.upper()}": value for name, value in values.items()}},
        roles=tuple(
            replace(
                role,
                command=fill_all(role.command),
                args=None if role.args is None else fill_all(role.args),
                env={name: fill(text) for name, text in role.env.items()},
            )
            for role in job.roles
        ),
    )


def without_place(job: Job, names: Iterable[str]) -> list[str]:
    """The parameters that stand in no argument and no variable: a script finds them in its environment
    alone.
    """
    texts = list(_texts(job))
    return [name for name in names if not any(f"{{{name}}}" in text for text in texts)]


def _texts(job: Job) -> Iterator[str]:
    parts: tuple[Job | Role, ...] = (job, *job.roles)
    for part in parts:
        yield from part.args or ()
        yield from part.command
        yield from part.env.values()
