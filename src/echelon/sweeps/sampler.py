"""Values of trials as Optuna's sampler chooses them, in memory. It is asked right before a trial starts, and
told what has become of it as soon as that is known, as a script does with `ask` and `tell`.

A sweep that is resumed tells a fresh sampler of all trials that have ended before; its seed is another one
then, since the first values that the sampler draws are known by now."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from echelon.errors import Unavailable
from echelon.model.program import Objective, Step
from echelon.sweeps.search import Parameter, Search


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
        kinds = {each.name: self._distribution(each) for each in search.space}
        for step in known:
            values = {each.name: each.value(step.params[each.name]) for each in search.space}
            self._study.add_trial(
                optuna.trial.create_trial(params=values, distributions=kinds, value=step.value)
            )

    def ask(self, trial: str, again: dict[str, str]) -> dict[str, str]:
        """The values of a trial that starts now; `again` those that it had before, if it had any."""
        with self._lock:
            if again:
                values = {each.name: each.value(again[each.name]) for each in self._search.space}
                self._study.enqueue_trial(values)
            asked = self._trials[trial] = self._study.ask()
            return {each.name: each.text(self._suggested(asked, each)) for each in self._search.space}

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

    def _suggested(self, asked: Any, each: Parameter) -> Any:
        if each.kind == "choice":
            return asked.suggest_categorical(each.name, list(each.choices))
        if each.kind == "int":
            return asked.suggest_int(each.name, int(each.low), int(each.high))
        return asked.suggest_float(each.name, each.low, each.high, log=each.log)

    def _distribution(self, each: Parameter) -> Any:
        kinds = self._optuna.distributions
        if each.kind == "choice":
            return kinds.CategoricalDistribution(list(each.choices))
        if each.kind == "int":
            return kinds.IntDistribution(int(each.low), int(each.high))
        return kinds.FloatDistribution(each.low, each.high, log=each.log)
