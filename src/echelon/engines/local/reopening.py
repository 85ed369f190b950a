"""A run that has ended, made ready to start again in its own folder.

The end is deleted last: a process that is killed before leaves a run that has ended as before, and one that
is killed after leaves a run that is recorded and not yet started. Either can be resumed."""

from __future__ import annotations

import contextlib
import os
import shutil

import msgspec

from echelon.engines import durable
from echelon.engines.local import processes
from echelon.engines.local.folder import rundir
from echelon.engines.local.folder.rundir import RunDir
from echelon.errors import StateTrouble
from echelon.model.run import Record


def _kept(folder: RunDir) -> RunDir:
    """Where the start that has ended is kept: the next number, or the last one if an earlier resumption was
    cut off there.
    """
    starts = folder.earlier_starts()
    if starts and (not starts[-1].events.exists() or starts[-1].events.samefile(folder.events)):
        return starts[-1]
    kept = RunDir(folder.earlier / str(int(starts[-1].path.name) + 1 if starts else 1))
    kept.path.mkdir(parents=True, mode=0o700)
    return kept


def reopen(folder: RunDir, again: Record) -> None:
    """Set aside how the run went, and record it anew; its name, its code and its results stay. The caller
    holds its lock.
    """
    job = again.job
    needs_code = job.script is not None and job.script.startswith("{code}")
    if (needs_code or job.snapshot) and not folder.bundle.exists():
        raise StateTrouble(
            f"the code of run {job.name!r} is not here any more",
            hint="submit it again, with --reuse-results and --results",
        )
    processes.end_processes(folder)
    durable.replace_file(folder.record, msgspec.json.encode(again))
    folder.task.unlink(missing_ok=True)
    durable.sync_folder(folder.path)  # a task without a plan would be damage
    for path in (folder.plan, folder.supervisor, folder.supervisor_log, folder.stop):
        path.unlink(missing_ok=True)
    kept = _kept(folder)
    for _worker, _failures, log in folder.worker_logs():
        for path in (log, rundir.compressed(log)):
            with contextlib.suppress(FileNotFoundError):
                path.rename(kept.path / path.name)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder.code)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder.seals)
    with contextlib.suppress(FileExistsError):
        os.link(folder.events, kept.events)
    first = msgspec.json.encode({"kind": "recorded", "at": again.created}) + b"\n"
    durable.replace_file(folder.events, first)
    folder.final.unlink()
    durable.sync_folder(folder.path)
