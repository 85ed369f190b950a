"""Lists of runs in which some are made of others: each is one row, and its steps are below it.

A run that is made of runs is on this machine, wherever its steps are: a list of a cluster's runs has those,
too, whose steps are there. Steps whose parent another machine has started stand in one row by themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from echelon.engines.base import Engine, RunDamaged
from echelon.engines.choose import LOCAL, choose_engine
from echelon.errors import EchelonError, UnknownRun
from echelon.model.program import Step
from echelon.model.run import Record, RunRef
from echelon.model.status import FINAL, RunSummary, Status

_WORST_FIRST = ("failed", "lost", "damaged", "timed-out", "stopped", "running", "starting", "queued")


def listed(engine: Engine) -> list[RunSummary]:
    """The runs of a place, the newest first, and those of this machine whose steps are there."""
    rows = list(engine.runs())
    if not engine.traits.remote:
        return rows
    parents = [row for row in choose_engine(LOCAL).runs() if row.steps_place == engine.traits.place]
    return sorted([*rows, *parents], key=lambda row: -row.created) if parents else rows


def folded(rows: Iterable[RunSummary]) -> list[RunSummary]:
    """The same rows without steps: their parents stand for them, or, where these are not among the rows, one
    row that is made of them. Pure.
    """
    return [row for row, _ in nested(rows)]


def nested(rows: Iterable[RunSummary]) -> list[tuple[RunSummary, Sequence[RunSummary]]]:
    """These rows, each with those of its steps. Pure."""
    rows = list(rows)
    parents = {row.name for row in rows if row.steps is not None or row.state == "damaged"}
    families: dict[tuple[str, str | None], list[RunSummary]] = {}
    for row in rows:
        if row.parent is not None:
            families.setdefault(_family(row.parent, row, parents), []).append(row)
    found: list[tuple[RunSummary, Sequence[RunSummary]]] = []
    for row in rows:
        if row.parent is None:
            found.append((row, families.get((row.name, None), ())))
        elif (family := _family(row.parent, row, parents))[1] is not None and family in families:
            steps = families.pop(family)
            found.append((_in_one(row.parent, steps), steps))
    return found


def _family(parent: str, step: RunSummary, parents: Collection[str]) -> tuple[str, str | None]:
    """Which steps belong together: those of a parent that is here, or of the same parent and owner. Somebody
    else may have a run of the same name.
    """
    return parent, None if step.own and parent in parents else step.owner


def gathered(row: RunSummary, steps: Sequence[RunSummary]) -> Status:
    """How a run stands that another machine has started, by its row and those of its steps. Pure."""
    return Status(
        name=row.name,
        uri="",
        state=row.state,
        reason=row.reason,
        command=row.command,
        created=row.created,
        ended=row.ended,
        owner=row.owner,
        steps=tuple(
            Step(
                name=step.name.removeprefix(f"{row.name}-"),
                state=step.state,
                run=step.uri,
                started=step.created,
                ended=step.ended,
                reason=step.reason or "",
            )
            for step in sorted(steps, key=lambda step: step.created)
        ),
    )


def _in_one(name: str, steps: Sequence[RunSummary]) -> RunSummary:
    """What the steps tell of a run of another machine."""
    running = [row for row in steps if row.state not in FINAL]
    shown = running or steps
    worst = next((row for state in _WORST_FIRST for row in shown if row.state == state), shown[0])
    ended = [row.ended for row in steps if row.ended is not None]
    return replace(
        worst,
        name=name,
        created=min(row.created for row in steps),
        ended=None if running or not ended else max(ended),
        workers=sum(row.workers for row in running) or max(row.workers for row in steps),
        gpus=sum(row.gpus for row in shown),
        trouble=None,
        command=f"{len(steps)} step{'s' * (len(steps) != 1)}, started by another machine",
        parent=None,
        steps=len(steps),
        steps_done=sum(row.state == "succeeded" for row in steps),
    )


def parents_of(source: str) -> list[Record]:
    """The runs of this machine that are made of runs, and were made of that file, the oldest first."""
    engine, found = choose_engine(LOCAL), []
    for name in engine.names():
        with suppress(RunDamaged, UnknownRun, EchelonError):
            record = engine.read(RunRef(engine=LOCAL, name=name))
            if record.job.program is not None and record.job.program.source == source:
                found.append(record)
    return sorted(found, key=lambda record: record.created)
