"""A run's results on this machine: what there is, and one file of it to download. Nothing outside of the
folder is listed or opened, wherever links lead."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from echelon.agent.files.tree import MARKER
from echelon.engines.results import check_inside
from echelon.errors import InvalidJob, from_os_error

_MOST_FILES = 2000


class Results(NamedTuple):
    """A results folder, None if there is none here; the `private` entries in it are not results."""

    folder: Path | None
    private: tuple[str, ...] = ()


def list_results(results: Results) -> dict[str, Any]:
    """The files of a results folder, by path; `more` says that there are others."""
    folder, private = results
    if folder is None or not folder.is_dir():
        return {"folder": None if folder is None else str(folder), "here": False, "files": [], "more": False}
    files: list[dict[str, Any]] = []
    more = False
    for below, folders, names in os.walk(folder):
        left_out = private if below == str(folder) else ()
        folders[:] = sorted(set(folders).difference(left_out))
        for name in sorted(set(names).difference(left_out)):
            path = Path(below, name)
            try:
                found = path.lstat()
            except OSError:
                continue  # gone meanwhile
            if not stat.S_ISREG(found.st_mode) or name == MARKER:
                continue
            if len(files) >= _MOST_FILES:
                more = True
                break
            shown = path.relative_to(folder).as_posix()
            files.append({"path": shown, "bytes": found.st_size, "changed": found.st_mtime})
        if more:
            break
    return {"folder": str(folder), "here": True, "files": files, "more": more}


def open_result(results: Results, path: str) -> tuple[BinaryIO, int]:
    """One file, open, and its size; InvalidJob for what is not a plain file below the folder."""
    folder, private = results
    none = InvalidJob("path", path, "is not among the results", hint="choose one that is listed")
    if folder is None or not path or "\0" in path:
        raise none
    source = check_inside(folder, path)
    if not {*source.relative_to(folder.resolve()).parts[:1]}.isdisjoint(private):  # wherever a link leads
        raise none
    try:
        # A pipe must not hold the server up, and a link that was put there meanwhile is not followed.
        number = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise none from None
    except OSError as error:
        raise from_os_error(error, source) from error
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode):
        os.close(number)
        raise InvalidJob("path", path, "is not a file", hint="choose one that is listed")
    return os.fdopen(number, "rb"), found.st_size
