"""`echelon.sweep`: a sweep from Python."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from echelon.engines.base import Engine
from echelon.engines.choose import choose_engine
from echelon.errors import InvalidJob, StateTrouble
from echelon.handle import Run
from echelon.jobfile import settings_from
from echelon.model.program import Step
from echelon.model.run import RunRef
from echelon.model.settings import Settings
from echelon.model.status import Status
from echelon.model.surroundings import Surroundings
from echelon.model.trials import best_of, by_objective
from echelon.observation.live import tell
from echelon.preparation.prepare import Prepared, prepare, prepare_function
from echelon.preparation.sources import find_surroundings, gather
from echelon.sweeps.objective import objective_of
from echelon.sweeps.request import Request
from echelon.sweeps.search import Search, search_of, trials_to_come
from echelon.sweeps.spaces import PARAMS, Choices, Dimension, Trial, read_space, trials
from echelon.sweeps.starting import check_settings, notes_on, plan_sweep, start_sweep
from echelon.values import frozen

_PLAIN = (str, bool, int, float, type(None))


@frozen
class TrialRun:
    """A trial of a sweep: its values, how it stands, and what it has reached."""

    name: str
    values: Mapping[str, Any]
    state: str
    value: float | None
    run: Run | None  # None as long as it has none


class SweepRun(Run):
    """A sweep that exists: a run as any other, which knows its trials."""

    def __init__(self, ref: RunRef, engine: Engine, given: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(ref, engine)
        self._given = given

    def trials(self) -> list[TrialRun]:
        """All trials as they stand now, the best first."""
        status = self.status(progress=False)
        return self._as_trials(by_objective(status.steps, status.objective))

    def best(self, timeout: float | str | None = None) -> TrialRun:
        """Wait for the end, and return the best of the trials that have succeeded."""
        status = self.wait(timeout)
        if status.objective is None:
            hint = 'give minimize="val_loss", or maximize="accuracy"'
            raise InvalidJob("minimize", None, "leaves open which trial is the best", hint=hint)
        best = best_of(status.steps, status.objective)
        if best is None:
            raise StateTrouble(
                f"no trial of {self.name!r} has reached a value of {status.objective.metric}",
                hint=_why_none(status),
            )
        return self._as_trials([best])[0]

    def _as_trials(self, steps: Sequence[Step]) -> list[TrialRun]:
        runs = self.steps()
        return [
            TrialRun(
                name=step.name,
                values=self._given.get(step.name) or _numbers(step.params),
                state=step.state,
                value=step.value,
                run=runs.get(step.name),
            )
            for step in steps
        ]


def _why_none(status: Status) -> str:
    first = next((step for step in status.steps if step.reason), None)
    if first is None:
        return f"is that what it prints? `echelon metrics {status.name}` lists what it has measured"
    return f"trial {first.name}: {first.reason}"


def sweep(
    what: str | os.PathLike[str] | Callable[..., object],
    space: Mapping[str, Sequence[object] | str],
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    minimize: str | None = None,
    maximize: str | None = None,
    value: str = "last",
    count: int | None = None,
    search: str | None = None,
    seed: int = 0,
    seeds: int | None = None,
    parallel: int | None = None,
    fail_fast: bool = False,
    early_stop: bool = False,
    **settings: Any,
) -> SweepRun:
    """Run a script or a function with many values of its parameters, and return the handle at once.

    A function gets the values by their names, a script for `{name}` in its arguments::

        echelon.sweep(train, {"lr": [1e-4, 1e-3]}, minimize="val_loss", workers=2).best()
        echelon.sweep("train.py", {"lr": "1e-5..1e-1:5"}, args=["--lr", "{lr}"])

    A text is what stands after the = for `echelon sweep`; `count` is its `--trials`, and other keywords are
    its flags (`search="tpe"`), or those of `echelon run`.
    """
    dimensions, plain = _space(space)
    objective = objective_of(minimize, maximize, value)
    chosen = search_of(search, dimensions, seed, repeats=seeds, objective=objective)
    if chosen is None:
        found = _with_given(trials(dimensions, count, seed, seeds), plain)
    else:
        found, chosen = trials_to_come(count), _with_choices(chosen, plain)
    given = {key: each for key, each in settings.items() if each is not None}
    if not callable(what):
        if kwargs:
            hint = 'a script takes args=["--lr", "{lr}"]'
            raise InvalidJob("kwargs", dict(kwargs), "is for a function", hint=hint)
        given |= {"script": os.fspath(what), "args": [str(word) for word in args]}
    surroundings = find_surroundings()
    merged = gather(settings_from(given, source="echelon.sweep()"), surroundings)
    check_settings(merged)
    if merged.dry_run:
        hint = "`echelon sweep --dry-run` shows what would happen"
        raise InvalidJob("dry_run", True, "leaves no sweep to return", hint=hint)
    engine = choose_engine(merged.on, context=merged.context, namespace=merged.namespace)
    if callable(what):
        names = list(found[0].values) if chosen is None else [each.name for each in chosen.space]
        prepared = _prepare_function(what, args, kwargs or {}, names, merged, surroundings, engine)
    else:
        found = tuple(replace(trial, given={}) for trial in found)
        prepared = prepare(merged, surroundings, engine.traits)
    request = Request(
        trials=found,
        search=chosen,
        objective=objective,
        parallel=parallel,
        fail_fast=fail_fast,
        early_stop=early_stop,
    )
    planned = plan_sweep(request, prepared, engine, named=merged.name is not None)
    notes = () if callable(what) else notes_on(planned)
    for note in (*prepared.notes, *engine.notes(prepared.job), *notes):
        tell(note)
    run = start_sweep(planned, prepared, engine, tell)
    here = choose_engine()
    return SweepRun(here.read(RunRef(engine="", name=run.name)).ref, here, _values(found))


def _prepare_function(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    names: Sequence[str],
    settings: Settings,
    surroundings: Surroundings,
    engine: Engine,
) -> Prepared:
    from echelon.function.returns import check_return

    check_return(function, remote=engine.traits.remote)
    twice = next((name for name in names if name in kwargs), None)
    if twice is not None:
        raise InvalidJob(
            "kwargs", twice, "is a parameter of the sweep too", hint="leave it out of one of them"
        )
    return prepare_function(
        function, tuple(args), kwargs, settings, surroundings, engine.traits, later=names, variable=PARAMS
    )


def _space(
    space: Mapping[str, Sequence[object] | str],
) -> tuple[list[Dimension], dict[str, dict[str, object]]]:
    """The parameters and, of those that are lists, the values by what a script's argument would be."""
    if not isinstance(space, Mapping):
        hint = 'give names and values: {"lr": [1e-4, 1e-3]}'
        raise InvalidJob("space", space, "is not a dict", hint=hint)
    found: list[Dimension] = []
    plain: dict[str, dict[str, object]] = {}
    for name, values in space.items():
        if isinstance(values, str):
            found += read_space([f"{name}={values}"], _no_file)
        else:
            plain[name] = _by_text(name, values)
            found.append(Choices(names=(name,), rows=tuple((text,) for text in plain[name])))
    return found, plain


def _with_given(found: Sequence[Trial], plain: Mapping[str, Mapping[str, object]]) -> tuple[Trial, ...]:
    """The trials, each with the values themselves, as the function gets them."""
    return tuple(
        replace(
            trial,
            given={
                name: plain[name][text] if name in plain else _number_or_text(text)
                for name, text in trial.values.items()
            },
        )
        for trial in found
    )


def _with_choices(search: Search, plain: Mapping[str, Mapping[str, object]]) -> Search:
    """The same for a search."""
    space = (
        replace(each, given=tuple(plain[each.name][text] for text in each.choices))
        if each.name in plain
        else each
        for each in search.space
    )
    return replace(search, space=tuple(space))


def _values(found: Sequence[Trial]) -> dict[str, Mapping[str, Any]]:
    return {trial.name: trial.given or trial.values for trial in found}


def _by_text(name: str, values: object) -> dict[str, object]:
    """Values by what a script's argument would be."""
    if not isinstance(values, Sequence) or not values:
        hint = 'a list of values, or a range as a text: "1e-5..1e-1:5"'
        raise InvalidJob(name, values, "is not a list of values", hint=hint)
    found: dict[str, object] = {}
    for each in values:
        if not isinstance(each, _PLAIN):
            hint = "numbers and texts; a function makes of them what it needs"
            raise InvalidJob(name, each, f"is of type {type(each).__name__}", hint=hint)
        if isinstance(each, float) and not math.isfinite(each):
            raise InvalidJob(name, each, "is not a number that JSON has", hint="leave it out")
        if str(each) in found:
            raise InvalidJob(name, each, "is there twice", hint="seeds=3 repeats every trial")
        found[str(each)] = each
    return found


def _numbers(values: Mapping[str, str]) -> dict[str, object]:
    return {name: _number_or_text(text) for name, text in values.items()}


def _number_or_text(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _no_file(path: str) -> str:
    raise InvalidJob("space", f"@{path}", "is a file", hint="read it, and give its columns")
