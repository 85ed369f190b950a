"""How a run stands, by its record and its events, who takes part in it, and when and why it was started
again: by itself after a failure, or by `resume`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from echelon.engines.base import Engine, RunDamaged
from echelon.errors import EchelonError, InvalidJob, UnknownRun
from echelon.model.event import Event
from echelon.model.program import OVER
from echelon.model.run import Record, RunRef, opening_status
from echelon.model.status import Status, WorkerStatus, fold
from echelon.observation.step_runs import StepRuns, of_all_starts
from echelon.values import frozen


def read_standing(engine: Engine, ref: RunRef) -> tuple[Record, Status]:
    """The record and the status that belong together."""
    record = engine.read(ref)
    while True:
        status = fold(opening_status(record), engine.events(ref))
        if record.plan is not None:
            return record, status
        record = engine.read(ref)
        if record.plan is None:
            return record, status
        # It was admitted while its events were read: they speak of workers that only the plan names.


def check_exists(engine: Engine, ref: RunRef, rank: int | None, worker: int | None) -> None:
    """Raise InvalidJob if the run, or none of the runs that it is made of, has such a rank or worker: its
    output would never come.
    """
    try:
        record = engine.read(ref)
    except RunDamaged:
        return  # its output may be there all the same
    if rank is None and worker is None:
        return
    workers = _all_workers(engine, record)
    if workers is None:
        return  # it may be one of those that are not known yet
    owner = f"run {ref.name!r}" if record.job.program is None else f"any step of run {ref.name!r}"
    for field, wanted, there in (
        ("worker", worker, [each.worker for each in workers]),
        ("rank", rank, [number for each in workers for number in each.ranks]),
    ):
        if wanted is not None and wanted not in there:
            hint = f"they are numbered 0 to {max(there)}" if max(there) else "there is only number 0"
            raise InvalidJob(field, wanted, f"is not a {field} of {owner}", hint=hint)


def _all_workers(engine: Engine, record: Record) -> Sequence[WorkerStatus] | None:
    """The workers of a run; those of its steps, too. None if not all are known so far, since it or one of its
    steps is still queued, or has not begun.
    """
    found = list(opening_status(record).workers)
    if not found or record.job.program is None:
        return found or None
    status = read_standing(engine, record.ref)[1]
    steps = of_all_starts(engine, record.ref, status.steps)
    runs = StepRuns(engine, record).of(steps.values())
    if not steps or any(step.name not in runs and step.state not in OVER for step in status.steps):
        return None
    for name, (at, there) in runs.items():
        try:
            theirs = opening_status(there.read(at)).workers
        except UnknownRun:
            continue  # it was removed, and its output with it
        except EchelonError:
            return None
        if not theirs and steps[name].state not in OVER:
            return None
        found += theirs
    return found


@frozen
class Start:
    """A start that was not the first."""

    at: float
    why: str
    part: str = ""  # the step that it is one of, of a run that is made of runs


def later_starts(engine: Engine, ref: RunRef) -> list[Start]:
    """All starts but the first, in order, as far as they can be read."""

    def events() -> Iterator[Event]:
        with suppress(EchelonError):  # they are beside what is shown, which may be whole
            yield from engine.earlier_events(ref)
            yield from engine.events(ref)

    return starts_in(events())


def starts_in(events: Iterable[Event]) -> list[Start]:
    """The same, of events from when the run was first recorded."""
    found: list[Start] = []
    ended: Event | None = None
    for event in events:
        reason = event.cause.summary if event.cause is not None else event.reason
        if event.kind == "restarting":
            found.append(Start(at=event.at, why=f"restart {event.restart or ''}: {reason or 'it failed'}"))
        elif event.kind == "finished":
            ended = event
        elif event.kind == "recorded" and ended is not None:
            cause = ended.cause.summary if ended.cause is not None else ended.reason
            how = f"{ended.outcome or 'lost'}: {cause}" if cause else ended.outcome or "lost"
            found.append(Start(at=event.at, why=f"resumed; before that it had ended: {how}"))
    return found
