"""A pipeline run from outside the command that runs it: its steps as they start, its end, its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from echelon.engines.choose import LOCAL
from echelon.engines.results import copy_matching, copy_result, is_pattern
from echelon.errors import InvalidJob, RunTimedOut
from echelon.handle import Run
from echelon.model.copy import LeftOut
from echelon.model.run import parse_uri
from echelon.model.status import FINAL, Status
from echelon.notebook.kept.folder import is_held, order_stop
from echelon.notebook.kept.noted import noted
from echelon.notebook.removing import Found, steps_of
from echelon.notebook.standing import PipelineStanding, exit_code_of, standing_of

_PULSE = 0.5  # seconds between two looks for steps that have started
_OWN = ("secret", "lock", "stop", "program", "values")  # of a pipeline's folder: no results


def runs_as_they_start(found: Found, deadline: float | None = None) -> Iterator[Run]:
    """The runs of its steps, also of those that start later, until the command that runs them has ended. Of a
    pipeline that another machine has started, those that there are by the time all before have been taken.
    Raises RunTimedOut after `deadline`, by the monotonic clock.
    """
    seen: set[tuple[str, float]] = set()  # a step that is run again has another time
    while True:
        over = found.noted is None or not is_held(found.noted.folder)  # before the look at what has started
        rows = steps_of(found.engine, found.pipeline)
        fresh = [row for row in rows if (row.uri, row.created) not in seen]
        for row in fresh:
            seen.add((row.uri, row.created))
            yield Run(parse_uri(row.uri, LOCAL), found.engine)
        if over and not fresh:
            return
        if deadline is not None and time.monotonic() > deadline:
            raise RunTimedOut(f"{found.pipeline!r} is not over yet", hint="it goes on; wait longer")
        if not fresh:
            time.sleep(_PULSE)


def exit_code(found: Found, ended: Sequence[Status]) -> int:
    """What a pipeline run that is over exits with: as the command that ran it."""
    codes = [status.exit_code for status in ended if status.exit_code]
    known = None if found.noted is None else noted(found.pipeline)
    return next(iter(codes), 0) if known is None else exit_code_of(known.record, codes)


def standing_now(found: Found) -> PipelineStanding:
    """How it stands, looked at anew."""
    rows = steps_of(found.engine, found.pipeline)
    known = None if found.noted is None else noted(found.pipeline)
    if known is None:
        return standing_of(found.pipeline, None, rows or found.rows)
    return standing_of(found.pipeline, known.record, rows, held=known.held)


def start_no_more(found: Found, tell: Callable[[str], object]) -> Found:
    """Let the command that runs its steps start none any more; returns it with the steps that are there then,
    for the caller to stop. Whichever starts at that moment, that command stops.
    """
    if found.noted is not None:
        order_stop(found.noted.folder)
    elif any(row.state not in FINAL for row in found.rows):
        tell(
            f"{found.pipeline} was not started by this machine: the command that runs its steps, if it still "
            "does, starts the next one; stop it there"
        )
    return replace(found, rows=steps_of(found.engine, found.pipeline))


def wait_until_over(found: Found, deadline: float) -> None:
    """Wait for the end of the command that runs its steps; raises RunTimedOut."""
    for _ in runs_as_they_start(found, deadline):
        pass


def get_results(
    found: Found, path: str, to: Path | None, notice: Callable[[LeftOut], object] = lambda _: None
) -> list[Path]:
    """Bring a file or folder of its folder, or all of it, to the folder `to`; returns where that is. Where
    another machine has started it, the results of each step, each in a folder of its own. `notice` gets what
    cannot be copied.
    """
    if found.noted is not None:
        for step in found.steps:
            step.collect(notice=notice)
        folder = found.noted.folder.path
        target = folder / Path(path).parent if to is None else to
        if is_pattern(path):
            return copy_matching(folder, path, to, leave_out=_OWN, notice=notice)
        return [copy_result(folder, path, target, leave_out=_OWN, notice=notice)]
    if path != ".":
        raise InvalidJob(
            "path",
            path,
            f"cannot be looked for in {found.pipeline!r}, which another machine has started",
            hint=f"name a step's run, such as {found.rows[0].name}",
        )
    return [step.get(".", None if to is None else to / step.name, notice=notice) for step in found.steps]
