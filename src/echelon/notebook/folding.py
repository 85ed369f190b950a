"""Notebooks' pipelines as rows of `ps`: the steps of each in one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from echelon.engines.choose import CLUSTER, LOCAL
from echelon.model.run import RunRef
from echelon.model.status import FINAL, RunSummary
from echelon.notebook.kept.noted import Noted
from echelon.notebook.standing import PipelineStanding, standing_of


def fold_pipelines(rows: Iterable[RunSummary], known: Mapping[str, Noted]) -> list[RunSummary]:
    """The same rows, those of one pipeline run in one, at the place of the first of them. `known` are those
    that this machine has started: how they stand is by their records.
    """
    pipelines: dict[tuple[str, str], list[RunSummary]] = {}
    order: list[RunSummary] = []
    for row in rows:
        if row.pipeline is None:
            order.append(row)
            continue
        steps = pipelines.setdefault((row.pipeline, row.owner), [])
        if not steps:
            order.append(row)
        steps.append(row)
    return [
        row
        if row.pipeline is None
        else _one(
            row.pipeline, pipelines[row.pipeline, row.owner], known.get(row.pipeline) if row.own else None
        )
        for row in order
    ]


def row_of(found: Noted) -> RunSummary:
    """The row of one that no step has a run of: all came from the cache, say, or its first was refused."""
    record = found.record
    ref = RunRef(
        engine=CLUSTER if record.on else LOCAL,
        name=record.name,
        namespace=record.namespace or None,
        context=record.context or None,
    )
    standing = standing_of(record.name, record, (), held=found.held)
    row = RunSummary(name=record.name, uri=str(ref), state=standing.state, created=record.created, workers=0)
    cached = all(step.state == "cached" for step in standing.steps)
    return _told(row, standing, f"{_count(standing)}{' from the cache' * cached}")


def _one(name: str, steps: Sequence[RunSummary], known: Noted | None) -> RunSummary:
    record = None if known is None else known.record
    standing = standing_of(name, record, steps, held=known is not None and known.held)
    running = [row for row in steps if row.state not in FINAL]
    row = replace(
        steps[0],
        name=name,
        created=min(row.created for row in steps),
        workers=sum(row.workers for row in running) if running else max(row.workers for row in steps),
        gpus=sum(row.gpus for row in running or steps),
        trouble=None,
    )
    return _told(row, standing, _count(standing) if known is not None else f"notebook, {_steps(len(steps))}")


def _told(row: RunSummary, standing: PipelineStanding, command: str) -> RunSummary:
    return replace(
        row,
        state=standing.state,
        reason=standing.reason or None,
        ended=standing.ended,
        command=command,
    )


def _count(standing: PipelineStanding) -> str:
    count = len(standing.steps)
    return f"notebook, {f'{standing.done} of ' * (standing.done != count)}{_steps(count)}"


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"
