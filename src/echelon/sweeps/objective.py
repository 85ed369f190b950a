"""What a trial has reached, by the metric that its sweep is about, and whether it is behind the others: its
best value so far is worse than the median of what they had reached at the same step. Pure."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from statistics import median

from echelon.errors import InvalidJob
from echelon.model.output.metric import Metric
from echelon.model.program import Objective
from echelon.values import frozen

_MOST = 10_000  # values that a mean is of
_OTHERS = 4  # trials that must have come so far: of fewer, the median says little
_FIRST = 2  # values of a trial by which it is not judged


def objective_of(minimize: str | None, maximize: str | None, of: str) -> Objective | None:
    """What the user asks for: a metric, and `last`, `best` or `mean:N` of its values."""
    if minimize and maximize:
        raise InvalidJob("maximize", maximize, "goes against --minimize", hint="a sweep has one objective")
    metric = minimize or maximize
    found = re.fullmatch(r"last|best|mean:(\d+)", of)
    count = int(found[1]) if found is not None and found[1] else 1
    if found is None or not 0 < count <= _MOST:
        raise InvalidJob("value", of, "is not known", hint="one of last, best, mean:N (of the last N values)")
    if metric is None:
        return None
    return Objective(
        metric=metric,
        goal="minimize" if minimize else "maximize",
        of="mean" if found[1] else of,  # type: ignore[arg-type]  # as the pattern has it
        count=count,
    )


def reached(measured: Iterable[Metric], objective: Objective) -> float | None:
    """The value of a trial: of the lowest rank that has the metric; None if none has a number."""
    lowest, values = math.inf, deque[float](maxlen=objective.count)
    better = min if objective.goal == "minimize" else max
    for metric in measured:
        if metric.name != objective.metric or not math.isfinite(metric.value):
            continue
        rank = math.inf if metric.rank is None else metric.rank  # what stands in a file comes after ranks
        if rank > lowest:
            continue
        if rank < lowest:
            lowest = rank
            values.clear()
        best = better(values[-1], metric.value) if values and objective.of == "best" else metric.value
        values.append(best)
    return sum(values) / len(values) if values else None


@frozen
class Behind:
    """That a trial is behind, in numbers."""

    metric: str
    best: float
    step: float
    counted: bool  # the step is the number of the value, since the metric has none
    median: float
    others: int

    def __str__(self) -> str:
        place = f"{'value' if self.counted else 'step'} {self.step:g}"
        return (
            f"{self.metric} {self.best:.4g} at {place} is behind the median of {self.others} other trials, "
            f"{self.median:.4g}"
        )


class Courses:
    """What the trials have reached so far, by the steps at which they were measured."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._better = min if objective.goal == "minimize" else max
        self._best: dict[str, dict[float, float]] = {}  # of each trial, up to and at each step
        self._rank: dict[str, float] = {}

    def add(self, trial: str, metric: Metric) -> Behind | None:
        """A value of a trial; whether it is behind by now. The lowest rank that has the metric counts."""
        if metric.name != self._objective.metric or not math.isfinite(metric.value):
            return None
        rank = math.inf if metric.rank is None else metric.rank
        lowest = self._rank.get(trial, math.inf)
        if rank > lowest:
            return None
        if rank < lowest:
            self._best.pop(trial, None)
        self._rank[trial] = rank
        own = self._best.setdefault(trial, {})
        step = float(len(own) + 1 if metric.step is None else metric.step)
        before = next(reversed(own.values())) if own else metric.value
        own[step] = self._better(before, metric.value)
        if len(own) <= _FIRST:
            return None
        return self._judge(trial, own[step], step, counted=metric.step is None)

    def _judge(self, trial: str, best: float, step: float, *, counted: bool) -> Behind | None:
        others = [each[step] for name, each in self._best.items() if name != trial and step in each]
        if len(others) < _OTHERS:
            return None
        middle = median(others)
        if self._better(best, middle) == best:
            return None
        return Behind(
            metric=self._objective.metric,
            best=best,
            step=step,
            counted=counted,
            median=middle,
            others=len(others),
        )
