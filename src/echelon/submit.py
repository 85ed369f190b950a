"""From what the user said to a run: the heart of echelon, in one readable path.

`gather` hears every source of settings, `prepare` settles what is open (which Python, which framework, which
folder), and `submit` is record + admit. The command line and `echelon.run` both come through here, so that a
flag and a keyword mean the same."""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
import shutil
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from echelon.admission import Queued, admit, find_plan, plan_anywhere
from echelon.bundle import Bundle, find_project, pack, pack_files
from echelon.engines.base import Engine
from echelon.errors import CannotShip, EchelonError, InvalidJob, NoRoomNow
from echelon.frameworks.detect import detect
from echelon.frameworks.torch import calls_torchrun
from echelon.handle import Run
from echelon.model.job import NAME_LENGTH, Job, is_unicode, suggest_name
from echelon.model.settings import Settings, merge, split_words, to_job
from echelon.shipping import LIMIT, notes_for_pods, settle_for_pods

_SUFFIX = 4
_PATIENCE = 10.0  # seconds for a run that was withdrawn to end
_FUNCTIONS = ".echelon"  # the folder in a bundle that holds a function's script


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job with nothing left open, and the code that must travel with it."""

    job: Job
    bundle: Bundle | None = None
    notes: tuple[str, ...] = ()  # what the user should know of it


def gather(said: Settings, overrides: Sequence[str] = (), file: Path | None = None) -> Settings:
    """Hear every source, the stronger first: flags or keywords, `--set`, the job file, ECHELON_ON for where
    to run, `[tool.echelon]` of the script's project.
    """
    from echelon.jobfile import read_job_file, read_overrides, read_tool_table

    if overrides:
        said = merge(said, read_overrides(overrides))
    if file is not None:
        said = merge(said, read_job_file(file))
    if said.on is None and (on := os.environ.get("ECHELON_ON")):
        said = replace(said, on=on)  # type: ignore[arg-type]  # `choose_engine` says so if it is none
    beside = Path(said.script).absolute().parent if said.script else Path.cwd()
    return merge(said, read_tool_table(beside))


def where_to_look(
    on: str | None, context: str | None, namespace: str | None
) -> tuple[str | None, str | None, str | None]:
    """Where the runs of this folder are: as said, by ECHELON_ON, or as its project has it for `run`."""
    from echelon.jobfile import read_tool_table

    on = on or os.environ.get("ECHELON_ON")
    if on == "local":
        return on, context, namespace
    project = read_tool_table(Path.cwd())
    return on or project.on, context or project.context, namespace or project.namespace


def prepare(said: Settings, environment: Mapping[str, str] = os.environ) -> Prepared:
    """Settle what the user left open: the name, the framework, the Python, the folder."""
    job = to_job(said, name=_fresh_name(_what_runs(said)))
    in_pods = said.on == "k8s"
    if in_pods:
        job = settle_for_pods(job, said)
    if job.script is not None and not (in_pods and job.pod.code):
        _check_script(Path(job.script))
    if job.framework == "auto":
        job = replace(job, framework=_find_framework(job))
    for role in job.roles if job.framework == "torch" else ():
        if not role.command or role.name == "launcher":
            hint = "leave it out, or say --framework; a role with a command of its own runs beside it"
            raise InvalidJob("role", role.name, "is not a role of PyTorch", hint=hint)
    if said.resume and said.results is None and said.name is None:
        raise InvalidJob(
            "resume", True, "says no folder", hint="add --results DIR, or --name RUN to go on in runs/RUN"
        )
    if job.framework == "tensorflow" and said.procs is None:
        job = replace(job, procs=1)  # one TensorFlow process drives all GPUs of its worker
    if not job.command and not in_pods:
        job = replace(job, python=_full_path(job.python) if job.python else find_python(environment))
        if "PATH" not in job.env:
            _check_python(job.python or "", environment)
    here = Path.cwd()
    if not is_unicode(str(here)):
        raise InvalidJob("cwd", str(here), "is not UTF-8", hint="rename the folder, or work in another")
    notes = notes_for_pods(job) if in_pods else ()
    if not job.snapshot:
        return Prepared(job=job if in_pods else replace(job, cwd=str(here)), notes=notes)
    project = find_project(Path(job.script).absolute() if job.script else here / "any")
    moved = _in_snapshot(job, project, here)
    include = job.include
    if job.script is not None:  # it runs, so it travels, whatever .gitignore says of it
        include = (*include, os.path.relpath(Path(job.script).resolve(), project))
    bundle = pack(project, include=include, limit=LIMIT if in_pods else None)
    return Prepared(job=moved, bundle=bundle, notes=(*bundle.notes, *notes))


def prepare_function(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object], said: Settings
) -> Prepared:
    """Make a function into a script, and settle the rest. It runs under the caller's own Python."""
    from echelon.function import script_of

    script = script_of(function, args, kwargs)
    in_pods = said.on == "k8s"
    said = replace(
        said,
        python=said.python or (None if in_pods else sys.executable),
        script=f"{{code}}/{_FUNCTIONS}/{script.name}.py",
    )
    job = to_job(said, name=_fresh_name(script.name))
    if in_pods:
        job = settle_for_pods(job, said)
    limit = LIMIT if in_pods else None
    if job.framework == "auto":
        job = replace(job, framework=_framework_of_function(function, script.text))
    files = {f"{_FUNCTIONS}/{script.name}.py": script.text.encode()}
    files.update({f"{_FUNCTIONS}/{name}": content for name, content in script.files.items()})
    if job.snapshot and script.project is not None:
        if script.elsewhere:
            places = ", ".join(map(str, script.elsewhere))
            raise CannotShip(
                f"{script.name} imports from {places}, outside its project",
                hint="leave --snapshot out, or move it in",
            )
        bundle = pack(script.project, include=job.include, extra=files, limit=limit)
    else:
        bundle = pack_files(files, limit=limit)
    return Prepared(
        job=replace(job, cwd="{code}" if in_pods else str(Path.cwd())), bundle=bundle, notes=bundle.notes
    )


def submit(prepared: Prepared, engine: Engine, *, no_wait: bool = False, stays: bool = True) -> Run:
    """Record the run, then let it in or leave it in line.

    What can never fit is refused before anything exists. If nobody keeps a line there and the caller does not
    stay (`stays`) to do it, the run starts without a place of its own, and whoever schedules makes it wait.
    """
    found = find_plan(prepared.job, engine)
    if isinstance(found, Queued) and no_wait:
        raise _no_room(found)
    ref = engine.record(prepared.job, prepared.bundle)
    run = Run(ref, engine)
    try:
        if isinstance(found, Queued) and not (no_wait or stays or engine.keeps_line):
            found = plan_anywhere(prepared.job)
        outcome = admit(ref, engine, found)
    except BaseException:  # a full disk, Ctrl-C: nothing is left behind
        _withdraw(run)
        raise
    if isinstance(outcome, Queued) and no_wait:  # somebody was faster by a moment
        _withdraw(run)
        raise _no_room(outcome)
    return run


def _no_room(found: Queued) -> NoRoomNow:
    return NoRoomNow(found.reason, hint="leave --no-wait out to stand in line")


def _withdraw(run: Run) -> None:
    """Forget a run that did not come about."""
    with contextlib.suppress(EchelonError, OSError):
        try:
            run.remove()
        except EchelonError:
            run.stop(now=True)
            run.wait(_PATIENCE)
            run.remove()


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


def _full_path(python: str) -> str:
    """A Python's path from anywhere; a name is left to the PATH. Links in it are kept."""
    return str(Path(python).expanduser().absolute()) if "/" in python else python


def _check_python(python: str, environment: Mapping[str, str]) -> None:
    if shutil.which(python, path=environment.get("PATH")) is None:
        inside = Path(python) / "bin" / "python"
        hint = (
            f"did you mean {inside}?" if inside.exists() else "leave it out to use the active environment's"
        )
        raise InvalidJob("python", python, "is not a program", hint=hint)


def _check_script(script: Path) -> None:
    if not script.exists():
        near = difflib.get_close_matches(script.stem, [path.stem for path in _siblings(script)], n=1)
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
    if script.is_dir() and not (script / "__main__.py").exists():
        raise InvalidJob("script", str(script), "is a folder", hint="name a file in it, or use -m MODULE")
    if not os.access(script, os.R_OK):
        raise InvalidJob("script", str(script), "cannot be read", hint=f"chmod +r {script}")


def _siblings(script: Path) -> list[Path]:
    try:
        return list(script.parent.glob("*.py"))
    except OSError:
        return []


def _find_framework(job: Job) -> str:
    """By the imports of what will run; a job with roles such as ps is TensorFlow's."""
    here = Path.cwd()
    source: Path | None = None
    if job.script is not None:
        source = Path(job.script)
    elif job.module is not None:
        relative = job.module.replace(".", "/")
        places = (
            root / path
            for root in (here, here / "src")
            for path in (f"{relative}.py", f"{relative}/__main__.py")
        )
        source = next((path for path in places if path.is_file()), None)
    elif calls_torchrun(job.command):
        return "torch"
    else:
        source = next(
            (Path(word) for word in job.command if word.endswith(".py") and Path(word).is_file()), None
        )
    found = (
        detect(source.read_bytes(), _roots(source)) if source is not None and source.is_file() else "plain"
    )
    alike = [role for role in job.roles if not role.command]  # the same program, told its role by TF_CONFIG
    return "tensorflow" if found == "plain" and alike else found


def _framework_of_function(function: Callable[..., object], text: str) -> str:
    found = detect(text.encode(), (Path.cwd(),))
    code = getattr(function, "__code__", None)
    file = Path(code.co_filename) if code is not None else None
    if found == "plain" and file is not None and file.is_file():
        return detect(file.read_bytes(), _roots(file))
    return found


def _roots(source: Path) -> tuple[Path, ...]:
    project = find_project(source.absolute())
    return (source.absolute().parent, Path.cwd(), project, project / "src")


def _in_snapshot(job: Job, project: Path, here: Path) -> Job:
    """The same job in the copy: the working folder stays where it was in the project."""
    inside = here if here == project or project in here.parents else project
    script = job.script
    if script is not None:
        script = os.path.relpath(Path(script).absolute(), inside)
    return replace(job, cwd=str(Path("{code}") / inside.relative_to(project)), script=script)


def _what_runs(said: Settings) -> str:
    if said.script or said.module:
        return said.script or said.module or ""
    return next(iter(split_words(said.command)), "run")


def _fresh_name(source: str) -> str:
    """A name that nobody has, made from what runs."""
    stem = (
        Path(source).stem if "/" in source or source.endswith((".py", ".sh")) else source.rpartition(".")[2]
    )
    letters = string.ascii_lowercase + string.digits
    suffix = "".join(secrets.choice(letters) for _ in range(_SUFFIX))
    return f"{suggest_name(stem)[: NAME_LENGTH - _SUFFIX - 1].rstrip('-')}-{suffix}"
