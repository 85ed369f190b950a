"""The trials of a sweep beside each other: which is the best. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import accumulate

from echelon.model.program import DONE, Objective, Step

_DIGITS = 6
_WHOLE = DONE - {"ended-early"}  # states of those that have run to their end


def by_objective(trials: Iterable[Step], objective: Objective | None) -> list[Step]:
    """The best first; those that have reached nothing last, as they are."""
    trials = list(trials)
    if objective is None:
        return trials
    sign = 1.0 if objective.goal == "minimize" else -1.0
    return sorted(
        trials, key=lambda trial: (trial.value is None, 0.0 if trial.value is None else sign * trial.value)
    )


def best_of(trials: Iterable[Step], objective: Objective) -> Step | None:
    """The best of those that have succeeded and reached something."""
    reached = (trial for trial in trials if trial.state in _WHOLE and trial.value is not None)
    return next(iter(by_objective(reached, objective)), None)


def best_so_far(trials: Iterable[Step], objective: Objective) -> list[float]:
    """The best value of all after each trial that has succeeded, in the order of their ends."""
    better = min if objective.goal == "minimize" else max
    ended = [trial for trial in trials if trial.state in _WHOLE and trial.value is not None]
    values = (trial.value for trial in sorted(ended, key=lambda trial: trial.ended or 0.0))
    return list(accumulate((value for value in values if value is not None), better))


def words_of_best(trials: Iterable[Step], objective: Objective) -> str:
    """`best val_loss 0.31 (lr=3e-4)`; empty while there is none."""
    best = best_of(trials, objective)
    if best is None:
        return ""
    values = ", ".join(f"{name}={short(value)}" for name, value in best.params.items())
    return f"best {objective.metric} {best.value:.4g}" + (f" ({values})" if values else "")


def short(value: str) -> str:
    """A parameter's value for a person: of a number with many digits, the first ones."""
    if len(value) <= _DIGITS + 2:
        return value
    try:
        return f"{float(value):.{_DIGITS}g}"
    except ValueError:
        return value


def state_of(trial: Step) -> str:
    """Its state as a table has it: whether it has run in this start of its sweep makes no difference."""
    return "succeeded" if trial.state in _WHOLE else trial.state


def steps_as_csv(steps: Sequence[Step], objective: Objective | None) -> str:
    """The trials as CSV, in the order of their numbers; of a pipeline, its steps."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    names = list(dict.fromkeys(name for step in steps for name in step.params))
    metric = [] if objective is None else [objective.metric]
    first = "trial" if names else "step"
    rows.writerow([first, *names, *metric, "state", "seconds", "exit_code", "reason"])
    for step in steps:
        took = "" if step.started is None or step.ended is None else f"{step.ended - step.started:.3f}"
        values = [step.params.get(name, "") for name in names]
        value = [] if objective is None else ["" if step.value is None else step.value]
        code = "" if step.exit_code is None else step.exit_code
        rows.writerow(
            [step.name, *values, *value, state_of(step) if names else step.state, took, code, step.reason]
        )
    return text.getvalue()
