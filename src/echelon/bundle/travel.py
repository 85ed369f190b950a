"""What of a project travels, in words for the user: before a run starts, and when a worker misses a file."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from echelon.bundle.archive import Bundle
from echelon.bundle.withheld import RESULTS, Withheld
from echelon.errors import CannotShip
from echelon.model.resources import format_memory

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
    notes += [f"{path} looks like a secret: left out; --include {path} ships it" for path in secrets]
    return tuple(notes)


def cannot_send(bundle: Bundle, why: str) -> CannotShip:
    """The refusal of a run whose code is too large to be recorded with it, and cannot be sent later."""
    size = format_memory(len(bundle.data))
    return CannotShip(
        f"{size} of compressed code is sent by the command that follows the run, once its first worker has"
        f" started, and {why}",
        hint="--code-volume pvc:NAME ships it through a volume; or name what the run can do without in"
        " .gitignore or .echelonignore",
    )


def why_missing(error: str, bundle: Bundle, folder: str, project: Path) -> str | None:
    """What to do about a file that a rank did not find because it is only here; None for any other error.

    `error` is the exception as Python prints it, with the path in quotes; `folder` is where the rank ran,
    from the project's top."""
    if not error.startswith(_MISSING):
        return None
    for found in _QUOTED.finditer(error):
        path = found[1] or found[2]
        for inside in _places(path, folder):
            for each in bundle.withheld:
                if f"{inside}/".startswith(f"{each.path.rstrip('/')}/") and (project / inside).exists():
                    why = f"{each.why} names it" if each.why.startswith(".") else "it was left out"
                    return f"{inside} is here and was not shipped, for {why}: --include {each.path} ships it"
        if path.startswith("/") and Path(path).exists():
            return (
                f"{path} is on this machine, whose files no worker sees: put it on a volume "
                f"(`echelon cp {path} pvc:NAME`, then --mount pvc:NAME:/PATH), or into the project"
            )
    return None


def _places(path: str, folder: str) -> Iterator[str]:
    """Where in the project a path of a worker may lie; the project itself lies elsewhere there."""
    if not path.startswith("/"):
        path = posixpath.join(folder, path)
    parts = posixpath.normpath(path).lstrip("/").split("/")
    for start in range(len(parts) if path.startswith("/") else 1):
        yield "/".join(parts[start:])
