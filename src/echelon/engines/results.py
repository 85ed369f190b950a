"""A results folder on this machine: what is in it, and copying from it, as `get` does with fetched results on
every engine.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from echelon.errors import InvalidJob, StateTrouble, from_os_error
from echelon.model.log import LogLine, decode

STREAMED = ".streamed"
"""A folder among the logs, with notes on those that were streamed while the run went on: they may lack lines,
and were not replaced by the worker's own yet."""


def holds_results(folder: Path) -> bool:
    """Whether results were brought to a folder; logs that were streamed while the run went on are none."""
    try:
        inside = [each.name for each in folder.iterdir()]
    except OSError:
        return False
    return inside != ["logs"] or not is_streamed(folder)


def is_streamed(folder: Path) -> bool:
    """Whether some of the logs in a results folder were streamed, and may lack lines."""
    return (folder / "logs" / STREAMED).is_dir()


RECENT = 64 * 1024
"""Bytes at the end of an output that are its last lines."""


def recent_lines(logs: Path, worker: int, ranks: Iterable[int]) -> Iterator[LogLine]:
    """The last lines of a worker's ranks, from the folder `logs` among the results; as their time, when the
    file was written last.
    """
    for rank in ranks:
        with suppress(OSError), (logs / f"rank-{rank}.log").open("rb") as file:
            about = os.fstat(file.fileno())
            file.seek(max(0, about.st_size - RECENT))
            for raw in file.read(RECENT).split(b"\n"):
                yield LogLine(text=decode(raw), at=about.st_mtime, worker=worker, rank=rank)


def check_inside(results: Path, path: str) -> Path:
    """Where a result lies; InvalidJob for a path that leads out of the folder."""
    source = (results / path).resolve()
    if source != results.resolve() and results.resolve() not in source.parents:
        raise InvalidJob("path", path, "is outside the results", hint=f"name a file below {results}")
    return source


def copy_result(results: Path, path: str, to: Path, *, leave_out: Collection[str] = ()) -> Path:
    """Copy a file or folder of the results (all of them for `.`, but those to `leave_out`) to `to`; returns
    where it is.

    What is there already is not copied onto itself."""
    source = check_inside(results, path)
    if not source.exists():
        raise InvalidJob("path", path, "is not among the results", hint=f"look into {results}")
    target = to if source == results.resolve() else to / source.name
    if target.resolve() == source:
        return target
    try:
        if source.is_dir():
            own = [each for each in leave_out if source == results.resolve()]

            def ignored(folder: str, _names: list[str]) -> list[str]:
                return own if Path(folder) == source else []

            shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True, ignore=ignored)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            shutil.copy2(source, partial)
            partial.replace(target)
    except shutil.Error as error:
        raise StateTrouble(
            f"cannot copy {source}: {error}", hint="choose another folder with --to"
        ) from error
    except OSError as error:
        raise from_os_error(error, target) from error
    return target
