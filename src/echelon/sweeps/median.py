"""Which trials are behind the others: those whose best value so far is worse than the median of what the
others had reached at the same step. Pure."""

from __future__ import annotations

import math
from statistics import median

from echelon.model.output.metric import Metric
from echelon.model.program import Objective
from echelon.values import frozen

_OTHERS = 4  # trials that must have come so far: of fewer, the median says little
_FIRST = 2  # values of a trial by which it is not judged


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
