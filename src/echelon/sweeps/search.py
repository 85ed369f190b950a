"""A search: trials whose values are chosen one after the other, from what those before have reached.

What a parameter is to the sampler follows from how it is written: any value of a range, one of several whole
numbers that follow each other, or else one of a list.

Optuna's sampler is in memory. It is asked right before a trial starts, and gets what has become of it as soon
as that is known, as a script does with `ask` and `tell`. A sweep that is resumed tells a fresh sampler of all
trials that have ended before; its seed is another one then, since the first values that the sampler draws are
known by now."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal

from echelon.errors import InvalidJob, Unavailable
from echelon.model.program import Objective, Step
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


def check_installed() -> None:
    """Raise Unavailable without Optuna."""
    if find_spec("optuna") is None:
        raise Unavailable(
            "--search tpe needs Optuna, which is not installed", hint="pip install 'echelon[sweep]'"
        )


class Sampler:
    """The sampler of one sweep. Several threads may call it."""

    def __init__(self, search: Search, objective: Objective, ended: Iterable[Step]) -> None:
        """`ended` are the trials that have ended before."""
        check_installed()
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._search = optuna, search
        self._trials: dict[str, Any] = {}  # by the names of those that run
        self._lock = threading.Lock()
        whole = [step for step in ended if step.state in ("succeeded", "kept")]
        known = [step for step in whole if step.params and step.value is not None]
        self._study = optuna.create_study(
            direction=objective.goal, sampler=optuna.samplers.TPESampler(seed=search.seed + len(known))
        )
        self._kinds = {each.name: self._distribution(each) for each in search.space}
        for step in known:
            values = {each.name: each.value(step.params[each.name]) for each in search.space}
            self._study.add_trial(
                optuna.trial.create_trial(params=values, distributions=self._kinds, value=step.value)
            )

    def ask(self, trial: str, again: dict[str, str]) -> dict[str, str]:
        """The values of a trial that starts now; `again` those that it had before, if it had any."""
        with self._lock:
            if again:
                values = {each.name: each.value(again[each.name]) for each in self._search.space}
                self._study.enqueue_trial(values)
            asked = self._trials[trial] = self._study.ask(self._kinds)
            return {each.name: each.text(asked.params[each.name]) for each in self._search.space}

    def tell(self, trial: str, value: float | None, *, ended_early: bool = False) -> None:
        """What a trial has reached; None if it has failed."""
        with self._lock:
            asked = self._trials.pop(trial, None)
            if asked is None:
                return
            states = self._optuna.trial.TrialState
            if value is None:
                self._study.tell(asked, state=states.FAIL)
            elif ended_early:
                asked.report(value, step=0)
                self._study.tell(asked, state=states.PRUNED)
            else:
                self._study.tell(asked, value)

    def _distribution(self, each: Parameter) -> Any:
        kinds = self._optuna.distributions
        if each.kind == "choice":
            return kinds.CategoricalDistribution(list(each.choices))
        if each.kind == "int":
            return kinds.IntDistribution(int(each.low), int(each.high))
        return kinds.FloatDistribution(each.low, each.high, log=each.log)
