"""What a trial has reached, by the metric that its sweep is about. Pure."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable

from echelon.errors import InvalidJob
from echelon.model.output.metric import Metric
from echelon.model.program import Objective

_MOST = 10_000  # values that a mean is of


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
