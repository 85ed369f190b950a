"""The steps of a notebook's pipeline as one row of `ps`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from echelon.model.status import FINAL, RunSummary

_WORST_FIRST = ("failed", "lost", "damaged", "timed-out", "stopped", "running", "starting", "queued")


def fold_pipelines(rows: Iterable[RunSummary]) -> list[RunSummary]:
    """The same rows, those of one pipeline run in one, at the place of the first of them."""
    pipelines: dict[str, list[RunSummary]] = {}
    order: list[RunSummary] = []
    for row in rows:
        if row.pipeline is None:
            order.append(row)
            continue
        if row.pipeline not in pipelines:
            order.append(row)
        pipelines.setdefault(row.pipeline, []).append(row)
    return [row if row.pipeline is None else _one(row.pipeline, pipelines[row.pipeline]) for row in order]


def _one(name: str, steps: Sequence[RunSummary]) -> RunSummary:
    running = [row for row in steps if row.state not in FINAL]
    shown = running or steps
    worst = next((row for state in _WORST_FIRST for row in shown if row.state == state), shown[0])
    ended = [row.ended for row in steps if row.ended is not None]
    count = f"{len(steps)} step{'s' * (len(steps) != 1)}"
    return replace(
        worst,
        name=name,
        created=min(row.created for row in steps),
        ended=None if running or not ended else max(ended),
        workers=sum(row.workers for row in running) if running else max(row.workers for row in steps),
        gpus=sum(row.gpus for row in shown),
        command=f"notebook, {count}",
    )
