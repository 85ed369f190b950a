"""A step in a pod: the pipeline run's folder is on a volume, and what lies beside the notebook has travelled
as code.

Worker 0 works in the working folder on the volume. What has travelled is copied there, and not linked: the
next step must find what this one writes under the same name. Every other worker has a copy in its own pod."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator

SECRET = "ECHELON_PIPELINE_SECRET"  # noqa: S105 - the variable's name
STATE, WORK = "state", "work"
_LEFT_OUT = ("runs", "__pycache__")
_OWN = (STATE, WORK, "values", "code")  # names of the pipeline run itself, in its folder


def enter(folder: Path, shipped: Path, chief: bool, above: bool) -> None:
    """Make the working folder the current directory."""
    work = folder / WORK
    if chief:
        (folder / STATE).mkdir(parents=True, exist_ok=True)
        work.mkdir(exist_ok=True)
        bring(shipped, work, folder / STATE / "shipped.json")
    else:
        copy = Path(tempfile.mkdtemp(prefix="work-"))
        copy_tree(work, copy / WORK)
        (copy / WORK).mkdir(exist_ok=True)
        bring(shipped, copy / WORK, None)
        folder, work = copy, copy / WORK
    if above:
        _link_above(shipped.parent, folder)
    os.chdir(str(work))


def bring(source: Path, work: Path, known: Any) -> None:
    """Copy files into the working folder, except where a step has changed or removed an earlier copy: `known`
    has the digests of those copies.
    """
    came: Dict[str, str] = {}
    if known is not None and known.exists():
        came = json.loads(known.read_text("utf-8"))
    now: Dict[str, str] = {}
    for name in _files(source):
        digest, target = _digest(source / name), work / name
        now[name] = digest
        if name in came:
            is_old = target.is_file() and digest != came[name] and _digest(target) == came[name]
        else:
            is_old = not target.exists()
        if is_old:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(".%s.%s" % (target.name, uuid.uuid4().hex[:8]))
            shutil.copy2(str(source / name), str(partial))
            partial.replace(target)
    if known is not None and now != came:
        partial = known.with_name(".%s.%s" % (known.name, uuid.uuid4().hex[:8]))
        partial.write_text(json.dumps(dict(came, **now)), encoding="utf-8")
        partial.replace(known)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder in which another process may write: what vanishes meanwhile is not there."""

    def copy(one: str, other: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(one, other, follow_symlinks=False)

    if not source.is_dir():
        return
    try:
        shutil.copytree(str(source), str(target), symlinks=True, copy_function=copy)
    except shutil.Error as error:
        if any(os.path.lexists(each[0]) for each in error.args[0]):
            raise


def _files(source: Path) -> Iterator[str]:
    """All files below a folder, but for hidden ones and results."""
    for path, folders, names in os.walk(str(source), followlinks=True):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _LEFT_OUT]
        for name in names:
            full = os.path.join(path, name)
            if not name.startswith(".") and os.path.isfile(full):
                yield os.path.relpath(full, str(source))


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            found.update(piece)
    return found.hexdigest()


def _link_above(project: Path, folder: Path) -> None:
    """Let `../data` be found: what lies beside the notebook's folder, to be read where it is."""
    for entry in sorted(project.iterdir()):
        link = folder / entry.name
        if entry.name.startswith(".") or entry.name in _OWN or link.exists():
            continue
        with contextlib.suppress(OSError):  # another step made it at the same moment
            if link.is_symlink():
                link.unlink()
            link.symlink_to(entry)
