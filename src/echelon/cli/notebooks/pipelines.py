"""What the commands on runs do when they are given a pipeline's name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelon.cli.printing import render
from echelon.cli.printing.say import say
from echelon.cli.printing.words import duration, near, one_line, state
from echelon.errors import EchelonError
from echelon.handle import STOP_PATIENCE
from echelon.model.job import STEP
from echelon.model.status import FINAL
from echelon.notebook.folding import fold_pipelines, row_of
from echelon.notebook.following import (
    exit_code,
    get_results,
    runs_as_they_start,
    standing_now,
    wait_until_over,
)
from echelon.notebook.kept.noted import is_noted_held, noted, noted_names

if TYPE_CHECKING:
    from echelon.engines.base import Engine
    from echelon.handle import Run
    from echelon.model.copy import LeftOut
    from echelon.model.output.log import LogLine
    from echelon.model.status import RunSummary, Status
    from echelon.notebook.removing import Found
    from echelon.notebook.standing import PipelineStanding

_OF_ALL = ("name", "state", "reason", "created", "ended", "notebook", "owner")
_OF_STEPS = ("name", "state", "run", "started", "ended", "reason", "hint", "cell", "line")


def with_pipelines(
    rows: list[RunSummary], engine: Engine, *, fold: bool, ended_too: bool
) -> list[RunSummary]:
    """The rows of `ps` with those of pipelines that no step has a run of; if they are to be folded, with one
    row for each pipeline. Records of those that have ended are only read if they are shown.
    """
    place = engine.traits.place if engine.traits.remote else ""
    going = {row.pipeline for row in rows if row.state not in FINAL}
    known = {
        name: found
        for name in noted_names()
        if (ended_too or name in going or is_noted_held(name))
        and (found := noted(name)) is not None
        and found.record.on == place
    }
    with_runs = {row.pipeline for row in rows if row.own}
    alone = [row_of(found) for name, found in known.items() if name not in with_runs]
    every = sorted([*rows, *alone], key=lambda row: row.created, reverse=True) if alone else rows
    return fold_pipelines(every, known) if fold else every


def show_standing(found: Found, format_: str) -> None:
    """How a pipeline stands, and each of its steps."""
    standing = standing_now(found)
    if format_ != "text":
        render.data(_as_data(standing), format_)
        return
    say(_in_a_line(standing))
    now = time.time()
    render.table(
        ("STEP", "STATE", "TOOK", "RUN", "REASON"),
        [
            (
                step.name,
                state(step.state),
                duration((step.ended or now) - step.started) if step.started is not None else "-",
                step.run or "-",
                step.reason,
            )
            for step in standing.steps
        ],
    )


def tell_stopped(found: Iterable[Found], format_: str) -> None:
    """Wait until pipelines that were told to stop are over, and tell how each ended."""
    deadline = time.monotonic() + STOP_PATIENCE
    for each in found:
        wait_until_over(each, deadline)
        if format_ == "text":
            say(_in_a_line(standing_now(each)))


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
    standing = standing_now(found)
    if format_ != "text":
        render.data(_as_data(standing), format_)
    else:
        if ended:
            render.outcomes(list(ended.values()), format_)
        say(_in_a_line(standing))
    code = exit_code(found, list(ended.values()))
    known = noted(found.pipeline) if found.noted is not None else None
    if known is not None and known.record.missing:
        render.notice(one_line(known.record.missing))
    elif format_ == "text" and not code and known is not None:
        render.notice(f"results in {near(str(known.folder.path))}")
    return render.final_code(code, trouble)


def _in_a_line(standing: PipelineStanding) -> str:
    reason = f": {one_line(standing.reason)}" if standing.reason else ""
    return f"{standing.name} {state(standing.state)}{reason}"


def _as_data(standing: PipelineStanding) -> dict[str, Any]:
    """As the dashboard has it, but for the drawing."""
    steps = [
        {key: getattr(step, key) for key in _OF_STEPS if getattr(step, key) not in (None, "")}
        for step in standing.steps
    ]
    return {**{key: getattr(standing, key) for key in _OF_ALL}, "steps": steps}


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
