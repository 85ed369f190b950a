"""What the commands on runs do when they are given a pipeline's name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.cli.printing import render
from echelon.cli.printing.words import near
from echelon.engines.choose import LOCAL
from echelon.errors import EchelonError
from echelon.model.job import STEP
from echelon.notebook.following import exit_code, get_results, runs_as_they_start
from echelon.notebook.kept.noted import cached_pipelines

if TYPE_CHECKING:
    from echelon.engines.base import Engine
    from echelon.handle import Run
    from echelon.model.copy import LeftOut
    from echelon.model.output.log import LogLine
    from echelon.model.status import RunSummary, Status
    from echelon.notebook.removing import Found


def with_cached(rows: list[RunSummary], engine: Engine) -> list[RunSummary]:
    """The rows of `ps` with those of pipelines that came wholly from the cache, which run here alone."""
    cached = [] if engine.traits.remote else [each.summary(LOCAL) for each in cached_pipelines()]
    if not cached:
        return rows
    return sorted([*rows, *cached], key=lambda row: row.created, reverse=True)


def rows_of(found: Found) -> list[RunSummary]:
    """Its steps as rows; of one that came wholly from the cache, its own row."""
    if found.rows or found.noted is None:
        return list(found.rows)
    return [found.noted.summary(LOCAL)]


def wait_for(found: Found, seconds: float | None, format_: str, *, take_over: bool) -> int:
    """Wait until a pipeline is over, and tell how each step ended; returns its exit code."""
    deadline = None if seconds is None else time.monotonic() + seconds
    ended: dict[str, Status] = {}
    trouble: EchelonError | None = None

    def collect(run: Run) -> None:
        nonlocal trouble
        try:
            render.collecting(run)
        except EchelonError as error:  # it does not hide how the step ended
            trouble = trouble or error

    def collecting(run: Run) -> Callable[[], None]:
        return lambda: collect(run)

    for run in runs_as_they_start(found, deadline):
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ended[run.name] = run.wait(
            left, take_over=take_over, tell=render.notice, collect=collecting(run), show=False
        )
    if format_ != "text":
        render.data(list(ended.values()) or rows_of(found), format_)
    elif ended:
        render.outcomes(list(ended.values()), format_)
    else:
        render.runs(rows_of(found), format_, ended_too=True)
    code = exit_code(found, list(ended.values()))
    if format_ == "text" and not code and found.noted is not None:
        render.notice(f"results in {near(str(found.noted.folder.path))}")
    return render.final_code(code, trouble)


def get(found: Found, path: str, to: str | None, format_: str) -> int:
    """Bring results, and tell where they are."""
    started = time.monotonic()
    left_out: list[LeftOut] = []
    try:
        places = get_results(found, path, None if to is None else Path(to), left_out.append)
    finally:
        render.left_out(left_out)
    for where in places:
        render.fetched(where, time.monotonic() - started, format_)
    return 0


def follow_lines(
    found: Found, wanted: Callable[[Run], Iterable[LogLine]], show: Callable[[str, LogLine], None]
) -> None:
    """Show the lines of all steps as they come, those of several steps beside each other, until the end."""
    threads = []

    def follow(run: Run) -> None:
        with suppress(EchelonError, OSError):  # how a step ended, `wait` and `status` tell
            step = run.job().env.get(STEP, run.name)
            for line in wanted(run):
                show(step, line)

    for run in runs_as_they_start(found):
        threads.append(threading.Thread(target=follow, args=(run,), name=run.name, daemon=True))
        threads[-1].start()
    for each in threads:
        each.join()
