"""A results folder on this machine: what is in it, and copying from it, as `get` does with fetched results on
every engine.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from echelon.engines.reservation import NO_RESULTS, RUNS, Hold, Owner, check_free, make_runs, reserve
from echelon.errors import InvalidJob, ResultsIncomplete, StateTrouble, from_os_error
from echelon.model.copy import LeftOut
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.output.log import LogLine, decode

STREAMED = ".streamed"
"""A folder among the logs, with notes on those that were streamed while the run went on: they may lack lines,
and were not replaced by the worker's own yet."""


def holds_results(folder: Path) -> bool:
    """Whether results were brought to a folder; logs that were streamed while the run went on are none."""
    try:
        inside = [each.name for each in folder.iterdir() if each.name not in NO_RESULTS]
    except OSError:
        return False
    return bool(inside) and (inside != ["logs"] or not is_streamed(folder))


def results_folder(job: Job) -> Path:
    """Where the results of a job belong on this machine."""
    return Path(job.results or Path(RUNS, job.name)).absolute()


def check_kept(run: str, end: Event | None, hint: str) -> None:
    """Raise ResultsIncomplete if a run's end says that lines of its output could not be written down."""
    if end is not None and end.missing:
        lacks = "; ".join(end.missing)
        raise ResultsIncomplete(f"the output of run {run!r} was not all kept: {lacks}", hint=hint)


def is_occupied(folder: Path) -> bool:
    """Whether there is anything in a folder but what echelon writes before a run does."""
    return any(each.name not in NO_RESULTS for each in folder.iterdir())


def is_streamed(folder: Path) -> bool:
    """Whether some of the logs in a results folder were streamed, and may lack lines."""
    return (folder / "logs" / STREAMED).is_dir()


def reserve_results(results: Path, owner: Owner, *, resume: bool) -> Hold:
    """Reserve the results folder of a run, see `reservation`. Raises StateTrouble if it is another run's, or
    cannot be used.
    """
    check_free(results, owner)  # first: what is in it is that run's
    check_results(results, resume=resume)
    try:
        make_runs(results.parent)
    except OSError as error:
        raise from_os_error(error, results) from error
    return reserve(results, owner)


def check_results(results: Path, *, resume: bool) -> None:
    """Raise now if the results of a run could not be written to its folder, or would mix with others'."""
    try:
        occupied = results.exists() and (not results.is_dir() or is_occupied(results))
        nearest = next(folder for folder in (results, *results.parents) if folder.exists())
    except OSError as error:
        raise from_os_error(error, results) from error
    if occupied and not results.is_dir():
        raise StateTrouble(f"{results} is not a folder", hint="choose another with --results")
    if occupied and not resume:
        raise StateTrouble(
            f"the results folder {results} is not empty",
            hint="--reuse-results goes on in it; --results chooses another; "
            "--replace renames a folder runs/NAME",
        )
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise StateTrouble(
            f"results cannot be written to {results}", hint="choose another folder with --results"
        )


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


def copy_result(
    results: Path,
    path: str,
    to: Path,
    *,
    leave_out: Collection[str] = (),
    notice: Callable[[LeftOut], object] = lambda _: None,
) -> Path:
    """Copy a file or folder of the results (all of them for `.`, but those to `leave_out`) to `to`; returns
    where it is. `notice` gets what cannot be copied.

    What is there already is not copied onto itself."""
    source = check_inside(results, path)
    if not source.exists():
        raise InvalidJob("path", path, "is not among the results", hint=f"look into {results}")
    whole = source == results.resolve()
    target = to if whole else to / source.name
    if target.resolve() == source:
        return target
    try:
        if source.is_dir():
            _copy_folder(source, target, leave_out if whole else (), notice)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(source, target)
    except OSError as error:
        raise from_os_error(error, target) from error
    return target


def is_pattern(path: str) -> bool:
    """Whether a path among results may stand for several, as in a shell: `ckpt/*.pt`, `**/best.pt`."""
    return any(letter in path for letter in "*?[")


def fixed_part(pattern: str) -> Path:
    """The folder that a pattern begins with, before its first wildcard."""
    parts = Path(pattern).parts
    return Path(*parts[: next(at for at, part in enumerate(parts) if is_pattern(part))])


def copy_matching(
    results: Path,
    pattern: str,
    to: Path | None,
    *,
    leave_out: Collection[str] = (),
    notice: Callable[[LeftOut], object] = lambda _: None,
) -> list[Path]:
    """Copy every file and folder of the results that a pattern names, but those to `leave_out`; returns where
    they are. Below `to` they are as below the pattern's fixed part; without it they stay where they are.
    """
    if ".." in Path(pattern).parts or Path(pattern).is_absolute():
        raise InvalidJob("path", pattern, "is outside the results", hint=f"name files below {results}")
    literal = results / pattern
    try:
        matches = [literal] if literal.exists() else sorted(results.glob(pattern))
    except (OSError, ValueError) as error:  # such as `a**b`
        hint = "for example 'ckpt/*.pt'"
        raise InvalidJob("path", pattern, f"cannot be looked for: {error}", hint=hint) from error
    below, inside = results / fixed_part(pattern), results.resolve()
    found: list[Path] = []
    for match in matches:
        path = match.relative_to(results)
        if path.parts[0] in leave_out or any(other in match.parents for other in found):
            continue  # of the latter, it comes with its folder
        if inside in match.resolve().parents:
            found.append(match)
        else:
            notice(LeftOut(path=str(path), why="it leads out of the results"))
    if not found:
        raise InvalidJob("path", pattern, "matches nothing among the results", hint="look at all with `.`")
    return [
        copy_result(
            results,
            str(match.relative_to(results)),
            match.parent if to is None else to / match.parent.relative_to(below),
            notice=notice,
        )
        for match in found
    ]


def _copy_folder(
    source: Path, target: Path, leave_out: Collection[str], notice: Callable[[LeftOut], object]
) -> None:
    """As results come from a cluster: links inside stay links, and what is not a file is reported. Links
    to outside stay, too: they lead to the same place of this machine.
    """
    from echelon.agent.files import tree

    target.mkdir(parents=True, exist_ok=True)
    skipped = target.resolve()  # it may be inside of what is copied
    for entry in tree.walk(str(source)):
        here, there = source / entry.path, target / entry.path
        if entry.path.split("/")[0] in leave_out or here == skipped or skipped in here.parents:
            continue
        if entry.kind == tree.LINK:
            _put(there, lambda partial, link=entry.link: partial.symlink_to(link))  # type: ignore[misc]
        elif entry.why_not:
            notice(LeftOut(path=entry.path, why=entry.why_not))
        elif entry.kind == tree.FOLDER:
            there.mkdir(exist_ok=True)
        else:
            _copy_file(here, there)


def _copy_file(source: Path, target: Path) -> None:
    _put(target, lambda partial: shutil.copy2(source, partial))


def _put(target: Path, make: Callable[[Path], object]) -> None:
    """Make something under another name, and give it its own in one step."""
    partial = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex}")
    try:
        make(partial)
        partial.replace(target)
    except OSError:
        if os.path.lexists(partial):
            partial.unlink()
        raise
