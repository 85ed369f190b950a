"""A job with nothing left open: its name, framework, Python and working folder settled, its code packed.

Everything depends on the settings, the surroundings they were given in and the engine's traits alone; what is
read is the project's files. The command line and `echelon.run` share it, so that a flag and a keyword mean
the same."""

from __future__ import annotations

import difflib
import os
import secrets
import shutil
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from echelon.bundle import Bundle, find_project, pack, pack_files
from echelon.errors import CannotShip, InvalidJob
from echelon.frameworks.detect import detect
from echelon.frameworks.torch import calls_torchrun
from echelon.model.job import NAME_LENGTH, Job, is_unicode, suggest_name
from echelon.model.settings import Settings, split_command, to_job
from echelon.model.surroundings import Surroundings
from echelon.model.traits import Traits
from echelon.shipping import notes_on_paths, settle_remote

_SUFFIX = 4
_FUNCTIONS = ".echelon"  # the folder in a bundle that holds a function's script


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job with nothing left open, and the code that must travel with it."""

    job: Job
    bundle: Bundle | None = None
    notes: tuple[str, ...] = ()  # for the user


def prepare(settings: Settings, surroundings: Surroundings, traits: Traits) -> Prepared:
    """Settle what the user left open, and pack the code where it has to travel."""
    folder = surroundings.folder
    job = to_job(settings, name=_fresh_name(_what_runs(settings)))
    if traits.remote:
        job = settle_remote(job, settings)
    if job.script is not None and not (traits.remote and job.pod.code):
        _check_script(Path(job.script), folder)
    if job.framework == "auto":
        job = replace(job, framework=_find_framework(job, folder))
    for role in job.roles if job.framework == "torch" else ():
        if not role.command or role.name == "launcher":
            hint = "leave it out, or say --framework; a role with a command of its own runs beside it"
            raise InvalidJob("role", role.name, "is not a role of PyTorch", hint=hint)
    if settings.resume and settings.results is None and settings.name is None:
        raise InvalidJob(
            "resume", True, "says no folder", hint="add --results DIR, or --name RUN to go on in runs/RUN"
        )
    if job.framework == "tensorflow" and settings.procs is None:
        job = replace(job, procs=1)  # one TensorFlow process drives all GPUs of its worker
    if not job.command and not traits.remote:
        job = replace(job, python=_settle_python(job, surroundings))
    if not is_unicode(str(folder)):
        raise InvalidJob("cwd", str(folder), "is not UTF-8", hint="rename the folder, or work in another")
    notes = notes_on_paths(job) if traits.remote else ()
    if not job.snapshot:
        return Prepared(job=job if traits.remote else replace(job, cwd=str(folder)), notes=notes)
    project = find_project(folder / (job.script or "any"))
    include = job.include
    if job.script is not None:  # it runs, so it travels, even if .gitignore names it
        include = (*include, os.path.relpath((folder / job.script).resolve(), project))
    bundle = pack(project, include=include, limit=traits.code_limit)
    return Prepared(job=_in_snapshot(job, project, folder), bundle=bundle, notes=(*bundle.notes, *notes))


def prepare_function(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    settings: Settings,
    surroundings: Surroundings,
    traits: Traits,
) -> Prepared:
    """Make a function into a script, and settle the rest. It runs under the caller's own Python."""
    from echelon.function import script_of

    folder = surroundings.folder
    script = script_of(function, args, kwargs)
    settings = replace(
        settings,
        python=settings.python or (None if traits.remote else sys.executable),
        script=f"{{code}}/{_FUNCTIONS}/{script.name}.py",
    )
    job = to_job(settings, name=_fresh_name(script.name))
    if traits.remote:
        job = settle_remote(job, settings)
    if job.framework == "auto":
        job = replace(job, framework=_framework_of_function(function, script.text, folder))
    files = {f"{_FUNCTIONS}/{script.name}.py": script.text.encode()}
    files.update({f"{_FUNCTIONS}/{name}": content for name, content in script.files.items()})
    if job.snapshot and script.project is not None:
        if script.elsewhere:
            places = ", ".join(map(str, script.elsewhere))
            raise CannotShip(
                f"{script.name} imports from {places}, outside its project",
                hint="leave --snapshot out, or move it in",
            )
        bundle = pack(script.project, include=job.include, extra=files, limit=traits.code_limit)
    else:
        bundle = pack_files(files, limit=traits.code_limit)
    job = replace(job, cwd="{code}" if traits.remote else str(folder))
    return Prepared(job=job, bundle=bundle, notes=bundle.notes)


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


def _settle_python(job: Job, surroundings: Surroundings) -> str:
    """The ranks' Python, from anywhere: a name is left to the PATH, links in a path are kept."""
    python = job.python or find_python(surroundings.environment)
    if job.python and "/" in python:
        python = str(surroundings.folder / Path(python).expanduser())
    if "PATH" not in job.env:
        _check_python(python, surroundings.environment)
    return python


def _check_python(python: str, environment: Mapping[str, str]) -> None:
    if shutil.which(python, path=environment.get("PATH")) is None:
        inside = Path(python) / "bin" / "python"
        hint = (
            f"did you mean {inside}?" if inside.exists() else "leave it out to use the active environment's"
        )
        raise InvalidJob("python", python, "is not a program", hint=hint)


def _check_script(script: Path, folder: Path) -> None:
    """Refuse what is no script; `script` is as the user wrote it, seen from `folder`."""
    full = folder / script
    if not full.exists():
        near = difflib.get_close_matches(script.stem, [path.stem for path in _siblings(full)], n=1)
        hint = (
            f"did you mean {script.with_name(f'{near[0]}.py')}?"
            if near
            else "give the path of a Python file; -- COMMAND runs anything else"
        )
        raise InvalidJob("script", str(script), "does not exist", hint=hint)
    if script.suffix == ".ipynb":
        hint = "notebooks come later; `echelon.run(function)` in it trains a function of it"
        raise InvalidJob("script", str(script), "is a notebook", hint=hint)
    if script.suffix in (".yaml", ".yml", ".json"):
        raise InvalidJob("script", str(script), "is not a script", hint=f"a job file is run with -f {script}")
    if full.is_dir() and not (full / "__main__.py").exists():
        raise InvalidJob("script", str(script), "is a folder", hint="name a file in it, or use -m MODULE")
    if not os.access(full, os.R_OK):
        raise InvalidJob("script", str(script), "cannot be read", hint=f"chmod +r {script}")


def _siblings(script: Path) -> list[Path]:
    try:
        return list(script.parent.glob("*.py"))
    except OSError:
        return []


def _find_framework(job: Job, folder: Path) -> str:
    """By the imports of what will run; a job with roles such as ps is TensorFlow's."""
    if job.command and calls_torchrun(job.command):
        return "torch"
    source = next((path for path in _sources(job, folder) if path.is_file()), None)
    found = "plain" if source is None else detect(source.read_bytes(), _roots(source, folder))
    alike = [role for role in job.roles if not role.command]  # the same program: TF_CONFIG has its role
    return "tensorflow" if found == "plain" and alike else found


def _sources(job: Job, folder: Path) -> list[Path]:
    """Files that may be what the job runs, the likeliest first."""
    if job.script is not None:
        return [folder / job.script]
    if job.module is not None:
        relative = job.module.replace(".", "/")
        roots = (folder, folder / "src")
        return [root / path for root in roots for path in (f"{relative}.py", f"{relative}/__main__.py")]
    return [folder / word for word in job.command if word.endswith(".py")]


def _framework_of_function(function: Callable[..., object], text: str, folder: Path) -> str:
    found = detect(text.encode(), (folder,))
    code = getattr(function, "__code__", None)
    file = Path(code.co_filename) if code is not None else None
    if found == "plain" and file is not None and file.is_file():
        return detect(file.read_bytes(), _roots(file.absolute(), folder))
    return found


def _roots(source: Path, folder: Path) -> tuple[Path, ...]:
    """Where the modules that a file imports may be."""
    project = find_project(source)
    return (source.parent, folder, project, project / "src")


def _in_snapshot(job: Job, project: Path, folder: Path) -> Job:
    """The same job in the copy: the working folder stays where it was in the project."""
    inside = folder if folder == project or project in folder.parents else project
    script = job.script
    if script is not None:
        script = os.path.relpath(folder / script, inside)
    return replace(job, cwd=str(Path("{code}") / inside.relative_to(project)), script=script)


def _what_runs(settings: Settings) -> str:
    return settings.script or settings.module or next(iter(split_command(settings.command)), "run")


def _fresh_name(source: str) -> str:
    """A name made from what runs, with a random end, so that no run has it."""
    stem = (
        Path(source).stem if "/" in source or source.endswith((".py", ".sh")) else source.rpartition(".")[2]
    )
    letters = string.ascii_lowercase + string.digits
    suffix = "".join(secrets.choice(letters) for _ in range(_SUFFIX))
    return f"{suggest_name(stem)[: NAME_LENGTH - _SUFFIX - 1].rstrip('-')}-{suffix}"
