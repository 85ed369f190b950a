"""A sweep from what the user asks for to a run: what `echelon sweep` and `echelon.sweep` call.

What can never work is refused before anything exists: all trials are known by then, and so is their job."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from echelon.admission import find_plan
from echelon.engines.base import Engine
from echelon.engines.choose import LOCAL, choose_engine
from echelon.engines.reservation import make_runs
from echelon.engines.results import check_results, results_folder
from echelon.errors import CannotShip, InvalidJob, RunExists, from_os_error
from echelon.executor.parent import job_of_parent
from echelon.handle import Run
from echelon.model.job import NAME_LENGTH, Job, check_name
from echelon.model.program import Program
from echelon.model.run import describe_command
from echelon.model.settings import Settings
from echelon.model.step_names import run_name
from echelon.preparation.prepare import Prepared
from echelon.preparation.shipping import is_sent
from echelon.submit import submit
from echelon.sweeps import kept
from echelon.sweeps.kept import Code, Sweep
from echelon.sweeps.request import Request
from echelon.sweeps.search import check_installed, example
from echelon.sweeps.spaces import Trial, filled, without_place

_EXECUTOR = "echelon.sweeps"
_SUFFIX = 5  # characters that make a generated name unique: a dash, and random ones
_KEY = 16  # bytes
_OF_ONE = ("replace", "reuse_results", "no_wait")  # settings that a sweep has no meaning for yet


def check_settings(settings: Settings) -> None:
    """Raise for what `run` has and a sweep does not."""
    for name in _OF_ONE:
        if getattr(settings, name):
            hint = "`echelon resume NAME` runs what failed or never ran, `echelon rm NAME` frees a name"
            raise InvalidJob(name.replace("_", "-"), True, "is not for sweeps", hint=hint)


def plan_sweep(request: Request, prepared: Prepared, engine: Engine, *, named: bool) -> Sweep:
    """The sweep that would be started. `named` says that the user has chosen its name."""
    if request.early_stop and request.objective is None:
        hint = "--minimize val_loss, or --maximize accuracy: a metric that the script prints"
        raise InvalidJob("early-stop", True, "has no metric to judge by", hint=hint)
    if request.search is not None:
        check_installed()
    job = _named(prepared.job, request.trials, named=named)
    bundle = prepared.bundle
    if is_sent(job, bundle, engine.traits):
        raise CannotShip(
            "the code is too large to be recorded with every trial",
            hint="--code-volume pvc:NAME keeps it on a volume; .echelonignore leaves files out",
        )
    sweep = Sweep(
        name=job.name,
        job=replace(job, results=str(results_folder(job))),
        trials=request.trials,
        key=os.urandom(_KEY).hex(),
        search=request.search,
        objective=request.objective,
        parallel=request.parallel,
        fail_fast=request.fail_fast,
        early_stop=request.early_stop,
        on=engine.traits.place if engine.traits.remote else "",
        context=engine.where.context,  # and not what kubectl is turned to later
        namespace=engine.where.namespace,
        code=None if bundle is None else Code(digest=bundle.digest, files=bundle.files, size=bundle.size),
    )
    first = first_job(sweep)
    engine.check(first)
    find_plan(first, engine)  # raises for what can never fit
    return sweep


def first_job(sweep: Sweep) -> Job:
    """What the first trial runs, for a look before there is any."""
    trial = sweep.trials[0]
    folder = Path(sweep.job.results or "")
    values = trial.values if sweep.search is None else example(sweep.search)
    job = filled(sweep.job, values)
    return replace(job, name=run_name(sweep.name, trial.name), results=str(folder / trial.name))


def notes_on(sweep: Sweep) -> list[str]:
    """What the user should know of the parameters."""
    names = list(dict.fromkeys(name for trial in sweep.trials for name in trial.values))
    if sweep.search is not None:
        names = [each.name for each in sweep.search.space]
    return [
        f"{{{name}}} is in no argument: the script finds {name} as ECHELON_PARAM_{name.upper()}"
        for name in without_place(sweep.job, names)
    ]


def start_sweep(sweep: Sweep, prepared: Prepared, engine: Engine, tell: Callable[[str], object]) -> Run:
    """Start the executor of a sweep, as a run of this machine."""
    here = choose_engine(LOCAL)
    _check_names(sweep, engine, here)
    folder = Path(sweep.job.results or "")
    check_results(folder, resume=False)
    _make_folder(folder)
    try:
        kept.write(folder, sweep, prepared.bundle)
        program = Program(
            title=f"sweep {describe_command(sweep.job)}",
            step_word="trial",
            objective=sweep.objective,
            place=sweep.on,
            context=sweep.context,
            namespace=sweep.namespace,
            private=kept.PRIVATE,
        )
        job = job_of_parent(
            sweep.name, folder, _EXECUTOR, [str(folder)], program, grace=sweep.job.grace, timeout=None
        )
        return submit(Prepared(job=job), here, stays=False, tell=tell)
    except BaseException:  # nothing has run: nothing is left
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _make_folder(folder: Path) -> None:
    try:
        make_runs(folder.parent)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise from_os_error(error, folder) from error


def _named(job: Job, trials: Sequence[Trial], *, named: bool) -> Job:
    """The job with a name that has room for the numbers of the trials."""
    room = NAME_LENGTH - 1 - max(len(trial.name) for trial in trials)
    if len(job.name) <= room:
        return job
    if named:
        hint = f"at most {room} characters, since trials are NAME-1 to NAME-{len(trials)}"
        raise InvalidJob("name", job.name, "is too long for a sweep", hint=hint)
    stem, end = job.name[:-_SUFFIX], job.name[-_SUFFIX:]
    name = f"{stem[: room - _SUFFIX].rstrip('-')}{end}"
    check_name(name)
    return replace(job, name=name)


def _check_names(sweep: Sweep, engine: Engine, here: Engine) -> None:
    """Raise if the name of the sweep, or of one of its trials, is that of another run."""
    names = [run_name(sweep.name, trial.name) for trial in sweep.trials]
    taken = {*engine.names()} & {*names} | ({*here.names()} & {sweep.name})
    if taken:
        first = min(taken, key=lambda name: (len(name), name))
        raise RunExists(
            f"there is a run {first!r} already",
            hint=f"--name chooses another name for the sweep; `echelon rm {first}` forgets that run",
        )
