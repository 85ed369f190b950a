"""A search: trials whose values are chosen one after the other, from what those before have reached. Pure.

What a parameter is to the sampler follows from how it is written: any value of a range, one of several whole
numbers that follow each other, or else one of a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from echelon.errors import InvalidJob
from echelon.model.program import Objective
from echelon.sweeps.spaces import MOST_TRIALS, Choices, Dimension, Trial, check_names
from echelon.values import frozen

SEARCHES = ("random", "tpe")
_FEWEST = 3  # whole numbers that are a range, and no list


@frozen
class Parameter:
    """One parameter of a search, and what it may be."""

    name: str
    kind: Literal["float", "int", "choice"]
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[str, ...] = ()
    given: tuple[Any, ...] = ()  # the choices as a function gets them, where they are not texts

    def first(self) -> str:
        """Some value of it, for a look before there is any trial."""
        return self.choices[0] if self.kind == "choice" else self.text(self.low)

    def text(self, value: Any) -> str:
        """A value as the script gets it: exactly as the sampler knows it."""
        return (
            str(value) if self.kind == "choice" else repr(int(value) if self.kind == "int" else float(value))
        )

    def value(self, text: str) -> Any:
        """The same the other way round."""
        return text if self.kind == "choice" else int(text) if self.kind == "int" else float(text)


@frozen
class Search:
    """How values are chosen: by which sampler, which begins with this seed."""

    by: Literal["tpe"]
    space: tuple[Parameter, ...]
    seed: int = 0


def search_of(
    by: str | None, space: Sequence[Dimension], seed: int, *, repeats: int | None, objective: Objective | None
) -> Search | None:
    """The search that is asked for; None for one that needs no sampler. Raises InvalidJob."""
    if by is None or by == "random":
        return None
    if by != "tpe":
        raise InvalidJob("search", by, "is not known", hint=f"one of {', '.join(SEARCHES)}")
    if objective is None:
        hint = "--minimize val_loss, or --maximize accuracy: a metric that the script prints"
        raise InvalidJob("search", by, "has nothing to search for", hint=hint)
    if repeats is not None:
        hint = "leave --seeds out: repeat the best trial afterwards"
        raise InvalidJob("seeds", repeats, "is not for --search tpe", hint=hint)
    if not space:
        raise InvalidJob("sweep", None, "has no parameter", hint="as in lr=1e-5..1e-1")
    check_names([name for each in space for name in each.names])
    return Search(by="tpe", space=tuple(map(_parameter, space)), seed=seed)


def trials_to_come(count: int | None) -> tuple[Trial, ...]:
    """So many trials, whose values are not known yet."""
    if count is None or count > MOST_TRIALS:
        hint = f"--trials N says how many, at most {MOST_TRIALS}"
        raise InvalidJob("trials", count, "is not a number of trials for a search", hint=hint)
    return tuple(Trial(name=str(number)) for number in range(1, count + 1))


def example(search: Search) -> dict[str, str]:
    """Some values."""
    return {each.name: each.first() for each in search.space}


def given_to_function(search: Search, values: Mapping[str, str]) -> dict[str, Any]:
    """A trial's values as a function gets them."""
    found = {}
    for each in search.space:
        text = values[each.name]
        found[each.name] = each.given[each.choices.index(text)] if each.given else each.value(text)
    return found


def _parameter(dimension: Dimension) -> Parameter:
    if not isinstance(dimension, Choices):
        return Parameter(
            name=dimension.name, kind="float", low=dimension.low, high=dimension.high, log=dimension.log
        )
    if len(dimension.names) > 1:
        hint = "give each parameter by itself: NAME=VALUE,VALUE or NAME=LOW..HIGH"
        raise InvalidJob("search", "tpe", "cannot choose from the rows of a file", hint=hint)
    texts = [text for (text,) in dimension.rows]
    if len(texts) >= _FEWEST and texts == list(_following(texts)):
        low, high = int(texts[0]), int(texts[-1])
        return Parameter(name=dimension.names[0], kind="int", low=low, high=high)
    return Parameter(name=dimension.names[0], kind="choice", choices=tuple(texts))


def _following(texts: Iterable[str]) -> Iterator[str]:
    """What the texts are, if they are whole numbers that follow each other."""
    number: int | None = None
    for text in texts:
        if number is None and not text.lstrip("-").isdecimal():
            return
        number = int(text) if number is None else number + 1
        yield str(number)
