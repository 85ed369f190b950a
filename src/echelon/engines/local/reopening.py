"""A run that has ended, made ready to start again in its own folder.

The end is deleted last: a process that is killed before leaves a run that has ended as before, and one that
is killed after leaves a run that is recorded and not yet started. Either can be resumed."""

from __future__ import annotations

import contextlib
import shutil

import msgspec

from echelon.engines import durable
from echelon.engines.local import processes
from echelon.engines.local.folder import rundir
from echelon.engines.local.folder.rundir import RunDir
from echelon.errors import StateTrouble
from echelon.model.run import Record


def reopen(folder: RunDir, again: Record) -> None:
    """Forget how the run went, and record it anew; its name, its code and its results stay. The caller holds
    its lock.
    """
    job = again.job
    needs_code = job.script is not None and job.script.startswith("{code}")
    if (needs_code or job.snapshot) and not folder.bundle.exists():
        raise StateTrouble(
            f"the code of run {job.name!r} is not here any more",
            hint="submit it again, with --resume and --results",
        )
    processes.end_processes(folder)
    durable.replace_file(folder.record, msgspec.json.encode(again))
    folder.task.unlink(missing_ok=True)
    durable.sync_folder(folder.path)  # a task without a plan would be damage
    for path in (folder.plan, folder.supervisor, folder.supervisor_log, folder.stop):
        path.unlink(missing_ok=True)
    for _worker, _failures, path in folder.worker_logs():
        path.unlink(missing_ok=True)
        rundir.compressed(path).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder.code)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder.seals)
    first = msgspec.json.encode({"kind": "recorded", "at": again.created}) + b"\n"
    durable.replace_file(folder.events, first)
    folder.final.unlink()
    durable.sync_folder(folder.path)
