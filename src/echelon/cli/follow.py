"""A run in the foreground: its output as it comes, a word when something happens, Ctrl-C, and the end."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

from echelon.cli import render
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.world import rank_count
from echelon.planning import make_world

_SAID_ANYWAY = (
    "recorded",
    "worker-started",
    "worker-running",
    "rank-ended",
    "worker-ended",
    "failed",
    "verdict",
    "finished",
)


def follow(run: Run, job: Job, format_: str) -> int:
    """Show the run until it has ended; its exit code is ours."""
    only_rank = rank_count(make_world(job)) == 1
    printer = render.LinePrinter(prefix=not only_rank, to_stderr=format_ != "text")
    interrupts = 0

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        render.notice("stopping; Ctrl-C again kills" if interrupts == 1 else "killing")
        run.stop(now=interrupts > 1)

    render.notice(render.headline(job, run))
    previous = {number: signal.signal(number, on_interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        watcher = threading.Thread(target=_tell_events, args=(run,), daemon=True)
        watcher.start()
        for line in run.raw_logs():
            printer.show(line)
        printer.finish()
        watcher.join()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    status = run.status()
    render.ending(status)
    if format_ != "text":
        render.data(status, format_)
    if interrupts and status.state == "stopped":
        return 130
    return status.exit_code or 0


def _tell_events(run: Run) -> None:
    queued = False
    for event in run.events():
        text = _in_words(event, was_queued=queued)
        queued = event.kind == "queued"
        if text:
            render.notice(text)
    sys.stderr.flush()


def _in_words(event: Event, *, was_queued: bool) -> str | None:
    if event.kind == "admitted":
        return "starting" if was_queued else None
    if event.kind == "restarting" and event.cause is not None:
        return f"restart {event.restart}: {event.cause.summary}"
    if event.kind == "worker-lost":
        return f"worker {event.worker} is lost: {event.reason}"
    if event.kind in _SAID_ANYWAY or event.kind == "stopping":
        return None
    return event.reason
