"""What a job runs: whether a file is a Python script, and which framework a script, a module, a command or a
function means. Files of the project are read, and nothing of it is executed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from shlex import quote

from echelon.bundle.project import find_project
from echelon.errors import InvalidJob
from echelon.frameworks.detect import detect
from echelon.frameworks.mpi import calls_launcher, source_calls_launcher
from echelon.frameworks.torch import calls_torchrun, shell_calls_torchrun
from echelon.model.job import Job

_SHELL_SCRIPTS = (".sh", ".bash")


def check_script(script: Path, folder: Path) -> None:
    """Refuse what is not a script; `script` is as the user wrote it, seen from `folder`."""
    full = folder / script
    if not full.exists():
        raise InvalidJob("script", str(script), "does not exist", hint=_instead_of(script, full))
    if script.suffix == ".ipynb":
        runs = f"`echelon notebook run {quote(str(script))}` runs it"
        hint = f"{runs}; `echelon.run(function)` in it trains a function"
        raise InvalidJob("script", str(script), "is a notebook", hint=hint)
    if script.suffix in (".yaml", ".yml", ".json"):
        raise InvalidJob(
            "script", str(script), "is not a script", hint=f"a job file is run with -f {quote(str(script))}"
        )
    if full.is_dir() and not (full / "__main__.py").exists():
        raise InvalidJob("script", str(script), "is a folder", hint="name a file in it, or use -m MODULE")
    if not os.access(full, os.R_OK):
        raise InvalidJob("script", str(script), "cannot be read", hint=f"chmod +r {quote(str(script))}")
    if not script.suffix.startswith(".py") and full.is_file() and script.suffix not in _SHELL_SCRIPTS:
        _check_python_script(script, full)


def _instead_of(script: Path, full: Path) -> str:
    """What a user may have meant by a script that is not there."""
    if str(script) == "-":
        return "`echelon run -- python -` runs what comes on standard input; or save it to a file"
    stems = [path.stem for path in _siblings(full)]
    if script.name == str(script) and script.name not in stems and shutil.which(script) is not None:
        alone = "`echelon run SCRIPT`, or " if script.name.startswith("python") else ""
        return f"it is a program: {alone}`echelon run -- {quote(str(script))} ...`"
    import difflib

    near = difflib.get_close_matches(script.stem, stems, n=1, cutoff=0.7)
    if near:
        return f"did you mean {script.with_name(f'{near[0]}.py')}?"
    return "give the path of a Python file; -- COMMAND runs anything else"


def check_module(module: str, folder: Path) -> None:
    """Refuse the path of a file where a module's name belongs: Python would import it, then fail."""
    if module.endswith(".py") and (folder / module).is_file():
        name = module[: -len(".py")].replace("/", ".")
        raise InvalidJob("module", module, "is a file", hint=f"leave -m out, or give its name: -m {name}")


def _check_python_script(script: Path, full: Path) -> None:
    """Refuse a program, and a script whose first line names another interpreter than Python."""
    with full.open("rb") as file:
        first = file.readline(256)
    zipped = first.startswith(b"PK")  # which Python runs by its __main__.py
    if zipped or (b"\0" not in first and (not first.startswith(b"#!") or b"python" in first)):
        return
    path = quote(str(script) if "/" in str(script) else f"./{script}")
    if first.startswith(b"#!") and not os.access(full, os.X_OK):
        path = f"{first[2:].decode('utf-8', 'replace').strip()} {quote(str(script))}"
    hint = f"`echelon run -- {path}` runs any program"
    raise InvalidJob("script", str(script), "is not a Python script", hint=hint)


def _siblings(script: Path) -> list[Path]:
    try:
        return list(script.parent.glob("*.py"))
    except OSError:
        return []


def as_command(job: Job) -> Job:
    """A shell script is run by the shell."""
    if job.script is None or not job.script.endswith(_SHELL_SCRIPTS):
        return job
    return replace(job, script=None, command=("bash", job.script))


def find_framework(job: Job, folder: Path) -> str:
    """By the imports of what will run; a job with roles such as ps is TensorFlow's."""
    if calls_torchrun(words_of(job)):
        return "torch"
    if starts_ranks(job, folder):
        return "mpi"
    if any(shell_calls_torchrun(text) for text in _shell_texts(job, folder)):
        return "torchrun"
    source = next((path for path in _sources(job, folder) if path.is_file()), None)
    alike = [role for role in job.roles if not role.command]  # the same program: TF_CONFIG has its role
    found = "plain" if source is None else detect(source.read_bytes(), _roots(source, folder))
    return "tensorflow" if found == "plain" and alike else found


def starts_ranks(job: Job, folder: Path) -> bool:
    """Whether what will run is mpirun, or a script that calls it."""
    if job.command and calls_launcher(job.command):
        return True
    sources = [*_sources(job, folder), *_shell_scripts(job, folder)]
    source = next((path for path in sources if path.is_file()), None)
    return source is not None and source_calls_launcher(source.read_bytes())


def words_of(job: Job) -> Sequence[str]:
    """The command, or how a module is called, as far as it says what runs."""
    return job.command or ("python", "-m", job.module or "")


def _shell_texts(job: Job, folder: Path) -> list[str]:
    """What a shell will read: the scripts in a command, and the word after -c."""
    texts = [after for word, after in pairwise(job.command) if word == "-c"]
    files = [path for path in _shell_scripts(job, folder) if path.is_file()]
    return [*texts, *(path.read_text("utf-8", "replace") for path in files)]


def _shell_scripts(job: Job, folder: Path) -> list[Path]:
    return [folder / word for word in job.command if word.endswith(_SHELL_SCRIPTS)]


def _sources(job: Job, folder: Path) -> list[Path]:
    """Files that may be what the job runs, the likeliest first."""
    if job.script is not None:
        return [folder / job.script]
    module = job.module or next((after for word, after in pairwise(job.command) if word == "-m"), None)
    if module is not None:
        relative = module.replace(".", "/")
        roots = (folder, folder / "src")
        return [root / path for root in roots for path in (f"{relative}.py", f"{relative}/__main__.py")]
    return [folder / word for word in job.command if word.endswith(".py")]


def framework_of_function(function: Callable[..., object], text: str, folder: Path) -> str:
    """By the imports of the script that calls it, else of the file that defines it."""
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
