"""Lists of runs in which some are made of others: each is one row, and its steps are below it.

A run that is made of runs is on this machine, wherever its steps are: a list of a cluster's runs has those,
too, whose steps are there. Steps whose parent another machine has started stand in one row by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.engines.base import RunDamaged
from echelon.engines.choose import LOCAL, choose_engine
from echelon.errors import EchelonError, InvalidJob, UnknownRun
from echelon.model.program import Step
from echelon.model.run import RunRef, parse_uri
from echelon.model.status import FINAL, RunSummary, Status

if TYPE_CHECKING:
    from echelon.engines.base import Engine
    from echelon.model.program import Program
    from echelon.model.run import Record

_WORST_FIRST = ("failed", "lost", "damaged", "timed-out", "stopped", "running", "starting", "queued")


def listed(engine: Engine) -> list[RunSummary]:
    """The runs of a place, the newest first, and those of this machine whose steps are there."""
    rows = list(engine.runs())
    if not engine.traits.remote:
        return rows
    here = choose_engine(LOCAL)
    parents = [row for row in here.runs() if row.steps_place and _has_steps_in(here, row, engine)]
    return sorted([*rows, *parents], key=lambda row: -row.created) if parents else rows


def _has_steps_in(here: Engine, row: RunSummary, engine: Engine) -> bool:
    from echelon.observation.step_runs import are_in

    with suppress(RunDamaged, UnknownRun):  # it was removed meanwhile
        program = here.read(parse_uri(row.uri, LOCAL)).job.program
        return program is not None and are_in(program, engine)
    return False


def folded(rows: Iterable[RunSummary]) -> list[RunSummary]:
    """The same rows without steps: their parents stand for them, with what they hold, or, where these are not
    among the rows, one row that is made of them. Pure.
    """
    return [row for row, _ in nested(rows)]


def nested(rows: Iterable[RunSummary]) -> list[tuple[RunSummary, Sequence[RunSummary]]]:
    """The same, each with the rows of its steps, the first to start first. Pure."""
    rows = list(rows)
    steps_of, orphans = _families(rows)
    found: list[tuple[RunSummary, Sequence[RunSummary]]] = []
    for row in rows:
        if row.parent is None:
            steps = _by_age(steps_of.get(row.name, ())) if _may_have_steps(row) else []
            found.append((_with_use(row, steps) if steps else row, steps))
        elif family := orphans.pop((row.parent, row.owner), None):
            found.append((_in_one(row.parent, family), _by_age(family)))
    return found


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
            for step in steps
        ),
    )


def steps_below(rows: Iterable[RunSummary]) -> list[RunSummary]:
    """The same rows, steps below their parents, the first to start first. Pure."""
    rows = list(rows)
    steps_of, orphans = _families(rows)
    alone = {id(row) for steps in orphans.values() for row in steps}
    found = []
    for row in rows:
        if row.parent is None or id(row) in alone:
            found.append(row)
        if _may_have_steps(row):
            found += _by_age(steps_of.get(row.name, ()))
    return found


def _may_have_steps(row: RunSummary) -> bool:
    """Of a run that cannot be read, only its steps tell that it has some."""
    return row.steps is not None or (row.state == "damaged" and row.parent is None)


def _by_age(rows: Iterable[RunSummary]) -> list[RunSummary]:
    return sorted(rows, key=lambda row: row.created)


def _families(
    rows: Sequence[RunSummary],
) -> tuple[dict[str, list[RunSummary]], dict[tuple[str, str], list[RunSummary]]]:
    """The steps of the parents among the rows; and, by parent and owner, those whose parent is not there."""
    steps_of: dict[str, list[RunSummary]] = {row.name: [] for row in rows if _may_have_steps(row)}
    orphans: dict[tuple[str, str], list[RunSummary]] = {}
    for row in rows:
        if row.parent is not None and row.own and row.parent in steps_of:
            steps_of[row.parent].append(row)
        elif row.parent is not None:
            orphans.setdefault((row.parent, row.owner), []).append(row)
    return steps_of, orphans


def _with_use(row: RunSummary, steps: Sequence[RunSummary]) -> RunSummary:
    """The row with the workers and GPUs of the steps that run; of all, where none does."""
    running = [step for step in steps if step.state not in FINAL]
    workers = sum(step.workers for step in running) or max(step.workers for step in steps)
    return replace(row, workers=workers, gpus=sum(step.gpus for step in running or steps))


def _in_one(name: str, steps: Sequence[RunSummary]) -> RunSummary:
    """What the steps tell of a run of another machine."""
    running = [row for row in steps if row.state not in FINAL]
    shown = running or steps
    worst = next((row for state in _WORST_FIRST for row in shown if row.state == state), shown[0])
    ended = [row.ended for row in steps if row.ended is not None]
    row = replace(
        worst,
        name=name,
        created=min(row.created for row in steps),
        ended=None if running or not ended else max(ended),
        trouble=None,
        command=f"{len(steps)} step{'s' * (len(steps) != 1)}, started by another machine",
        parent=None,
        steps=len(steps),
        steps_done=sum(row.state == "succeeded" for row in steps),
    )
    return _with_use(row, steps)


def parents_of(source: str) -> list[Record]:
    """The runs of this machine that are made of runs, and were made of that file, the oldest first."""
    return sorted(_parents(lambda program: program.source == source), key=lambda record: record.created)


def names_of_parents(engine: Engine) -> list[str]:
    """The names of those whose steps are in a place."""
    from echelon.observation.step_runs import are_in

    return [record.ref.name for record in _parents(lambda program: are_in(program, engine))]


def steps_in(name: str) -> list[str]:
    """The names of the steps of a run of this machine; none if there is no such run."""
    engine = choose_engine(LOCAL)
    with suppress(RunDamaged, UnknownRun, InvalidJob):
        ref = parse_uri(name, LOCAL)
        if engine.read(ref).job.program is not None:
            return list(
                dict.fromkeys(step.name for event in engine.events(ref) for step in event.steps or ())
            )
    return []


def _parents(wanted: Callable[[Program], bool]) -> Iterator[Record]:
    engine = choose_engine(LOCAL)
    for name in engine.names():
        with suppress(EchelonError):  # damaged, or removed meanwhile
            record = engine.read(RunRef(engine=LOCAL, name=name))
            if record.job.program is not None and wanted(record.job.program):
                yield record
