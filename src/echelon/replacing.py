"""Replacing a run: one of the same name that has ended makes way; its results stay beside the new ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from echelon.engines.base import Engine
from echelon.engines.results import is_occupied, results_folder
from echelon.errors import RunExists, UnknownRun, from_os_error
from echelon.handle import Run
from echelon.model.job import Job
from echelon.model.run import Record, RunRef
from echelon.model.status import FINAL


def free_name(job: Job, engine: Engine, tell: Callable[[str], object]) -> None:
    """Remove a run of the job's name, if there is one and it has ended; raises RunExists if it goes on.
    Results in the folder that the job would write to are renamed, unless it goes on in them.
    """
    record = make_room(job, engine, tell)
    if record is None:
        return
    run = Run(record.ref, engine)
    state = run.status(progress=False).state
    if state not in (*FINAL, "recorded"):
        raise RunExists(
            f"run {job.name!r} is {state}: only a run that has ended is replaced",
            hint=f"`echelon stop {job.name}` ends it; --name chooses another name",
        )
    run.remove(tell)
    results = results_folder(job)
    if not job.resume and results == Path(record.results):
        _tell_aside(results, tell)


def make_room(job: Job, engine: Engine, tell: Callable[[str], object]) -> Record | None:
    """The run of the job's name. If there is none, what one that was forgotten has left in its folder
    `runs/NAME` is renamed; a folder that the user names may be of something else.
    """
    try:
        return engine.read(RunRef(engine="", name=job.name))
    except UnknownRun:
        if job.results is None and not job.resume:
            _tell_aside(results_folder(job), tell)
        return None


def _tell_aside(results: Path, tell: Callable[[str], object]) -> None:
    aside = _set_aside(results)
    if aside is not None:
        tell(f"the results of the run before are in {aside}")


def _set_aside(results: Path) -> Path | None:
    """Give a folder with something in it the next free name: exp, exp.1, exp.2."""
    try:
        if not results.is_dir() or not is_occupied(results):
            return None
        for number in count(1):
            aside = results.with_name(f"{results.name}.{number}")
            if not aside.exists():
                return results.rename(aside)
    except OSError as error:
        raise from_os_error(error, results) from error
    return None
