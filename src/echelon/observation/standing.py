"""How a run stands, by its record and its events, and who takes part in it."""

from __future__ import annotations

from echelon.engines.base import Engine, RunDamaged
from echelon.errors import InvalidJob
from echelon.model.run import Record, RunRef, opening_status
from echelon.model.status import Status, fold


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
    """Raise InvalidJob if the run has no such rank or worker: its output would never come."""
    try:
        record = engine.read(ref)
    except RunDamaged:
        return  # its output may be there all the same
    if record.job.program is not None:
        return  # they are those of its steps, and some of these may not have begun
    workers = opening_status(record).workers
    if not workers:
        return  # still queued: its world is not known yet
    for field, wanted, there in (
        ("worker", worker, [each.worker for each in workers]),
        ("rank", rank, [number for each in workers for number in each.ranks]),
    ):
        if wanted is not None and wanted not in there:
            hint = f"they are numbered 0 to {max(there)}" if len(there) > 1 else "there is only number 0"
            raise InvalidJob(field, wanted, f"is no {field} of run {ref.name!r}", hint=hint)
