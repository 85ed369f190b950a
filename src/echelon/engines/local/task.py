"""The task file of a local run: a plan as its agents read it."""

from __future__ import annotations

import msgspec

from echelon.engines import durable
from echelon.engines.local import processes
from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.task import make_task
from echelon.model.job import is_function
from echelon.model.plan import Plan
from echelon.model.run import Record
from echelon.model.world import rank_count

JOIN_TIMEOUT = 60.0


def write_task(folder: RunDir, record: Record, plan: Plan) -> None:
    """Write the task of a run's agents and their supervisor, which adds the port of the gang."""
    task = make_task(
        record,
        plan,
        code=str(folder.code),
        output=record.results,
        logs=f"{record.results}/logs",
        reports=str(folder.path),
        secret=str(folder.secret),
        leader=("127.0.0.1", 0),
        bundle=_bundle(folder),
        join_timeout=JOIN_TIMEOUT,
        project=record.job.snapshot,
        interactive=rank_count(plan.world) == 1,
        hidden=(processes.MARK,),  # a shell beside a rank is not part of the run
        gpus=[seat.gpus for seat in plan.placement.seats],
        filled=[seat.worker for seat in plan.placement.seats if seat.node or record.job.least is None],
    )
    if is_function(record.job):
        from echelon.codecs.writing import SEALS  # which imports what no script needs

        task["env"][SEALS] = str(folder.seals)
    durable.replace_file(folder.task, msgspec.json.encode(task), sync=False)


def _bundle(folder: RunDir) -> dict[str, str] | None:
    if not folder.bundle.exists():
        return None
    import hashlib  # it loads OpenSSL, which a run without a snapshot does not need

    digest = hashlib.sha256(folder.bundle.read_bytes()).hexdigest()
    return {"path": str(folder.bundle), "digest": digest, "target": str(folder.code)}
