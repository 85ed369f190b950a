"""A job with nothing left open: its name, framework, Python and working folder settled, its code packed.

Everything depends on the settings, the surroundings they were given in and the engine's traits alone; what is
read is the project's files. The command line and `echelon.run` share it, so that a flag and a keyword mean
the same."""

from __future__ import annotations

import os
import shutil
import string
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelon.bundle.project import find_project
from echelon.errors import CannotShip, InvalidJob
from echelon.frameworks.detect import detect
from echelon.frameworks.torch import calls_torchrun, find_alone
from echelon.home_folder import expanded
from echelon.model.elastic import range_of
from echelon.model.engine.traits import Traits
from echelon.model.forms import split_command
from echelon.model.job import FUNCTIONS, NAME_LENGTH, ROLES, Job, is_unicode, ranks_asked, suggest_name
from echelon.model.meaning import to_job
from echelon.model.pods.pod import IMAGE
from echelon.model.settings import Settings
from echelon.model.surroundings import Surroundings
from echelon.preparation.pods import check_requirements, settle_pods
from echelon.preparation.programs import (
    as_command,
    check_module,
    check_script,
    find_framework,
    framework_of_function,
    starts_ranks,
    words_of,
)
from echelon.preparation.shipping import code_limit, notes_on_paths, settle_remote
from echelon.preparation.tracking import settle_tracking
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.bundle import Bundle
    from echelon.function import FunctionScript

_SUFFIX = 4
_MANY_RANKS, _RANKS_OF_A_CORE = 100, 32  # up to so many start on this machine without a question
_STARTERS = (
    "accelerate",
    "bash",
    "deepspeed",
    "env",
    "horovodrun",
    "mpiexec",
    "mpirun",
    "sh",
    "torchrun",
    "uv",
)
_ROLES_OF = {  # others have all of them
    "torch": ("PyTorch", ()),
    "jax": ("JAX", ()),
    "xgboost": ("XGBoost", ("chief",)),
    "horovod": ("Horovod", ("chief",)),
}
_ONE_PROCESS = ("tensorflow", "jax")  # it drives all GPUs of its worker


@frozen
class Prepared:
    """A job with nothing left open, and the code that must travel with it."""

    job: Job
    bundle: Bundle | None = None
    project: Path | None = None  # what the bundle was made of
    notes: tuple[str, ...] = ()  # for the user


def prepare(settings: Settings, surroundings: Surroundings, traits: Traits) -> Prepared:
    """Settle what the user left open, and pack the code where it has to travel."""
    folder = surroundings.folder
    job = to_job(settings, name=_fresh_name(_what_runs(settings)))
    check_requirements(job.pod.requirements, folder)
    if traits.remote:
        job = settle_pods(settle_remote(job, settings), settings, folder)
    if job.script is not None and not (traits.remote and (job.pod.code or settings.code == IMAGE)):
        check_script(Path(job.script), folder)
    if job.module is not None:
        check_module(job.module, folder)
    script, include = job.script, job.include
    job = as_command(job)
    if job.framework == "auto":
        job = replace(job, framework=find_framework(job, folder))
    job = replace(job, starts_ranks=job.framework == "mpi" and starts_ranks(job, folder))
    name, own = _ROLES_OF.get(job.framework, ("", ROLES))
    for role in job.roles:
        if role.name not in own and (not role.command or role.name == "launcher"):
            hint = "leave it out, or say --framework; a role with a command of its own runs beside it"
            raise InvalidJob("role", role.name, f"is not a role of {name}", hint=hint)
    if settings.reuse_results and settings.results is None and settings.name is None:
        raise InvalidJob(
            "reuse_results",
            True,
            "says no folder",
            hint="add --results DIR, or --name RUN to go on in runs/RUN",
        )
    _check_replace(settings)
    job = _settle_ranks(job, settings)
    _check_crowd(job, settings, surroundings, traits)
    _check_shares(job)
    _check_torchrun(job)
    _check_elastic(job, traits)
    if not job.command and not traits.remote:
        job = replace(job, python=settle_python(job.python, surroundings, check="PATH" not in job.env))
    if not is_unicode(str(folder)):
        raise InvalidJob("cwd", str(folder), "is not UTF-8", hint="rename the folder, or work in another")
    notes = notes_on_paths(job) if traits.remote else ()
    job = settle_tracking(job, surroundings)
    if job.tracking is not None and settings.detach:
        notes = (*notes, f"`echelon wait {job.name}` forwards the metrics to {job.tracking.to}")
    if not job.snapshot:
        return Prepared(job=job if traits.remote else replace(job, cwd=str(folder)), notes=notes)
    from echelon.bundle.archive import pack
    from echelon.bundle.travel import notes_on_travel

    project = find_project(folder / (script or "any"))
    if script is not None:  # it runs, so it travels, even if .gitignore names it
        include = (*include, os.path.relpath((folder / script).resolve(), project))
    bundle = pack(project, include=include, limit=code_limit(job, traits))
    travel = notes_on_travel(bundle) if traits.remote else ()
    return Prepared(
        job=_in_snapshot(job, project, folder),
        bundle=bundle,
        project=project,
        notes=(*travel, *bundle.notes, *notes),
    )


def prepare_function(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    settings: Settings,
    surroundings: Surroundings,
    traits: Traits,
    *,
    later: Collection[str] = (),
    variable: str = "",
) -> Prepared:
    """Make a function into a script, and settle the rest. It runs under the caller's own Python; `later` and
    `variable` are as for `script_of`.
    """
    from echelon.function import script_of

    script = script_of(function, args, kwargs, later=later, variable=variable)
    framework = partial(framework_of_function, function, script.text, surroundings.folder)
    return _prepare_written(script, framework, settings, surroundings, traits)


def prepare_cell(
    text: str,
    namespace: dict[str, Any],
    also: Iterable[str],
    settings: Settings,
    surroundings: Surroundings,
    traits: Traits,
) -> Prepared:
    """The same for a notebook's cell; `also` as for `script_of_cell`."""
    from echelon.function import script_of_cell

    script = script_of_cell(text, namespace, also=also)
    source = f"{script.text}\n{text}".encode()
    return _prepare_written(
        script, lambda: detect(source, (surroundings.folder,)), settings, surroundings, traits
    )


def _prepare_written(
    script: FunctionScript,
    find_framework: Callable[[], str],
    settings: Settings,
    surroundings: Surroundings,
    traits: Traits,
) -> Prepared:
    from echelon.bundle.archive import pack, pack_files
    from echelon.bundle.travel import notes_on_travel

    folder = surroundings.folder
    settings = replace(
        settings,
        python=settings.python or (None if traits.remote else sys.executable),
        script=f"{{code}}/{FUNCTIONS}/{script.name}.py",
    )
    job = to_job(settings, name=_fresh_name(script.name))
    check_requirements(job.pod.requirements, folder)
    _check_replace(settings)
    if traits.remote:
        job = settle_pods(settle_remote(job, settings), settings, folder)
    if job.framework == "auto":
        job = replace(job, framework=find_framework())
    job = _settle_ranks(job, settings)
    _check_crowd(job, settings, surroundings, traits)
    _check_elastic(job, traits)
    files = {f"{FUNCTIONS}/{script.name}.py": script.text.encode()}
    files.update({f"{FUNCTIONS}/{name}": content for name, content in script.files.items()})
    if job.snapshot and script.project is not None:
        if script.elsewhere:
            places = ", ".join(map(str, script.elsewhere))
            raise CannotShip(
                f"{script.name} imports from {places}, outside its project",
                hint="leave --snapshot out, or move it in",
            )
        bundle = pack(script.project, include=job.include, extra=files, limit=code_limit(job, traits))
    else:
        bundle = pack_files(files, limit=code_limit(job, traits))
    job = settle_tracking(replace(job, cwd="{code}" if traits.remote else str(folder)), surroundings)
    travel = notes_on_travel(bundle) if traits.remote else ()
    return Prepared(job=job, bundle=bundle, project=script.project, notes=(*travel, *bundle.notes))


def _settle_ranks(job: Job, settings: Settings) -> Job:
    """Of some frameworks one process drives all GPUs of its worker."""
    if job.framework not in _ONE_PROCESS or settings.procs is not None:
        return job
    shape = None if job.shape is None else replace(job.shape, rank_per_gpu=False)
    return replace(job, procs=1, shape=shape)


def _check_crowd(job: Job, settings: Settings, surroundings: Surroundings, traits: Traits) -> None:
    """So many processes of a training framework would take the machine's memory, for a slip of the hand."""
    ranks, cores = ranks_asked(job), surroundings.cores
    if (
        traits.remote
        or settings.force
        or cores is None
        or ranks <= max(_MANY_RANKS, _RANKS_OF_A_CORE * cores)
    ):
        return
    raise InvalidJob(
        "workers",
        job.workers,
        f"makes {ranks} ranks, and this machine has {cores} core{'s' * (cores != 1)}",
        hint="--force starts them all the same; --on k8s runs them in a cluster",
    )


def _check_shares(job: Job) -> None:
    """torchrun gives every worker as many ranks as any other."""
    if job.shape is None or job.shape.shares == "equal":
        return
    if job.framework == "torchrun" or calls_torchrun(words_of(job)):
        raise InvalidJob(
            "shares",
            job.shape.shares,
            "may give workers different numbers of GPUs, and torchrun wants the same on all",
            hint="leave --shares out; or leave torchrun out: `echelon run train.py` starts the ranks itself",
        )


def _check_torchrun(job: Job) -> None:
    """What torchrun is told in so many words wins over its variables: the same for all workers, it would
    train a model on each of them, or wait for nodes that never come.
    """
    if job.workers == 1 or job.roles or job.shape is not None or not calls_torchrun(words_of(job)):
        return
    found = find_alone((*job.command, *job.args), 0 if job.least is not None else job.workers)
    if found is not None:
        hint = (
            "leave it out, and --nnodes, --node_rank, --master_addr and --master_port too: echelon sets them"
        )
        raise InvalidJob("torchrun", found, f"is wrong on {range_of(job)} workers", hint=hint)


def _check_elastic(job: Job, traits: Traits) -> None:
    """Where the number of workers cannot change."""
    if job.least is None:
        return
    one = f"give one number, as in -n {job.workers}"
    if not traits.elastic:
        hint = f"{one}; on this machine, without --on, a range is possible"
        raise InvalidJob(
            "workers", range_of(job), f"is a range, and {traits.place} cannot do that yet", hint=hint
        )
    if job.framework == "mpi" or job.starts_ranks:
        hint = f"{one}; or start the ranks without mpirun"
        raise InvalidJob("workers", range_of(job), "is a range, and mpirun starts a fixed number", hint=hint)


def _check_replace(settings: Settings) -> None:
    if settings.replace and settings.name is None:
        raise InvalidJob("replace", True, "says no run", hint="add --name RUN")


def find_python(environment: Mapping[str, str]) -> str:
    """The Python of the active virtual or conda environment, else the one on the PATH."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if prefix := environment.get(variable):
            python = Path(prefix) / "bin" / "python"
            if python.exists():
                return str(python)
    found = shutil.which("python3", path=environment.get("PATH")) or shutil.which(
        "python", path=environment.get("PATH")
    )
    return found or sys.executable


def settle_python(given: str | None, surroundings: Surroundings, *, check: bool = True) -> str:
    """The ranks' Python, from anywhere: a name is left to the PATH, links in a path are kept."""
    python = given or find_python(surroundings.environment)
    if given and "/" in python:
        python = str(surroundings.folder / expanded(python))
    if check:
        _check_python(python, surroundings.environment)
    return python


def _check_python(python: str, environment: Mapping[str, str]) -> None:
    if shutil.which(python, path=environment.get("PATH")) is None:
        inside = [Path(python) / "bin" / "python", Path(python) / "python"]
        meant = next((path for path in inside if path.exists()), None)
        hint = f"did you mean {meant}?" if meant else "leave it out to use the active environment's"
        raise InvalidJob("python", python, "is not a program", hint=hint)


def _in_snapshot(job: Job, project: Path, folder: Path) -> Job:
    """The same job in the copy: the working folder stays where it was in the project."""
    inside = folder if folder == project or project in folder.parents else project
    script = job.script
    if script is not None:
        script = os.path.relpath(folder / script, inside)
    return replace(job, cwd=str(Path("{code}") / inside.relative_to(project)), script=script)


def _what_runs(settings: Settings) -> str:
    """The script or module; of a command that only starts one, such as `python train.py`, that one."""
    words = split_command(settings.command)
    if settings.script or settings.module or not words:
        return settings.script or settings.module or "run"
    first = Path(words[0]).name
    if first in _STARTERS or first.startswith("python"):
        for word, after in pairwise((*words, "")):
            if word == "-m" and after:
                return after
            if word.endswith((".py", ".sh")):
                return word
    return words[0]


def named_after(settings: Settings, prefix: str | None) -> Settings:
    """The settings with a name that begins so, as `generateName` of Kubernetes asks for one; those that have
    a name keep it.
    """
    if settings.name is not None or not prefix:
        return settings
    return replace(settings, name=_fresh_name(prefix))


def _fresh_name(source: str) -> str:
    """A name made from what runs, with a random end, so that no run has it."""
    stem = (
        Path(source).stem if "/" in source or source.endswith((".py", ".sh")) else source.rpartition(".")[2]
    )
    letters = string.ascii_lowercase + string.digits
    suffix = "".join(letters[byte % len(letters)] for byte in os.urandom(_SUFFIX))
    return f"{suggest_name(stem)[: NAME_LENGTH - _SUFFIX - 1].rstrip('-')}-{suffix}"
