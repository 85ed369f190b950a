"""What of a project travels, in words for the user: before a run starts, and when a worker misses a file."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from echelon.bundle.archive import Bundle
from echelon.bundle.project import find_project
from echelon.bundle.survey import survey
from echelon.bundle.withheld import RESULTS, Withheld
from echelon.errors import CannotShip
from echelon.model.job import Job
from echelon.model.resources import format_memory

_CODE = "{code}"  # where a shipped project lies, in paths of its job
_MISSING = "FileNotFoundError"  # as Python prints it before the message
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_NO_NEWS = Withheld(path=f"{RESULTS}/", why="results")
_OTHER = {"results": "results", "incomplete": "an incomplete download", "image": "an image archive"}


def what_travels(bundle: Bundle) -> str:
    """How much code travels, and how much of the project an ignore file keeps here."""
    said = f"{bundle.files} file{'s' * (bundle.files != 1)}, {format_memory(bundle.size)}"
    counts = Counter(each.why for each in bundle.withheld)
    for file in (".gitignore", ".echelonignore"):
        if counts[file]:
            said += f"; {counts[file]} ignored by {file}"
    return said


def notes_on_travel(bundle: Bundle) -> tuple[str, ...]:
    """What travels, and what stays here though no ignore file names it."""
    notes = [f"ships {what_travels(bundle)}"]
    other = [
        f"{each.path} ({_OTHER[each.why]})"
        for each in bundle.withheld
        if each.why in _OTHER and each != _NO_NEWS
    ]
    if other:
        notes.append(f"left out: {', '.join(other)}; --include ships what it names")
    secrets = [each.path for each in bundle.withheld if each.why == "secret"]
    notes += [f"{path} looks like a secret: left out; --include {quote(path)} ships it" for path in secrets]
    return tuple(notes)


def cannot_send(bundle: Bundle, why: str) -> CannotShip:
    """The refusal of a run whose code is too large to be recorded with it, and cannot be sent later."""
    size = format_memory(len(bundle.data))
    return CannotShip(
        f"{size} of compressed code is sent by the command that submits the run, once its first worker has"
        f" started, and {why}",
        hint="--code-volume pvc:NAME ships it through a volume; or name what the run can do without in"
        " .gitignore or .echelonignore",
    )


def misses_file(error: str | None) -> bool:
    """Whether an exception, as Python prints it, says that a file is not there."""
    return error is not None and error.startswith(_MISSING)


def why_missing_here(error: str, job: Job, folder: Path) -> str | None:
    """`why_missing` of a run of which only its job is known, seen from the folder from which it was started:
    what did not travel is what would not travel now.
    """
    if not job.cwd.startswith(_CODE):
        return None  # its code did not travel
    script = None if job.script is None or job.script.startswith(_CODE) else job.script
    project = find_project(folder / (script or "any"))
    withheld = survey(project, include=job.include).withheld
    return why_missing(error, withheld, job.cwd.removeprefix(_CODE).strip("/"), project)


def why_missing(error: str, withheld: Sequence[Withheld], folder: str, project: Path) -> str | None:
    """What to do about a file that a rank did not find because it is only here; None for any other error.

    `error` is the exception as Python prints it, with the path in quotes; `folder` is where the rank ran,
    from the project's top."""
    if not misses_file(error):
        return None
    for found in _QUOTED.finditer(error):
        path = found[1] or found[2]
        for inside in _places(path, folder):
            for each in withheld:
                if f"{inside}/".startswith(f"{each.path.rstrip('/')}/") and (project / inside).exists():
                    why = f"{each.why} names it" if each.why.startswith(".") else "it was left out"
                    where = inside if _stands_in(project) else project / inside
                    ships = f"--include {quote(each.path)} ships it"
                    return f"{where} is here and was not shipped, for {why}: {ships}"
        if path.startswith("/") and Path(path).exists():
            return (
                f"{path} is on this machine, whose files no worker sees: put it on a volume "
                f"(`echelon cp {quote(path)} pvc:NAME`, then --mount pvc:NAME:/PATH), or into the project"
            )
    return None


def _stands_in(project: Path) -> bool:
    """Whether this process is somewhere in the project, so that its paths are plain."""
    try:
        return Path.cwd().is_relative_to(project.resolve())
    except OSError:
        return False


def _places(path: str, folder: str) -> Iterator[str]:
    """Where in the project a path of a worker may lie; the project itself lies elsewhere there."""
    if not path.startswith("/"):
        path = posixpath.join(folder, path)
    parts = posixpath.normpath(path).lstrip("/").split("/")
    for start in range(len(parts) if path.startswith("/") else 1):
        yield "/".join(parts[start:])
