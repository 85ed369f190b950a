"""A run in the foreground: its output as it comes, a notice of each event, Ctrl-C, and the end."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

from echelon.cli import render
from echelon.cli.lines import LinePrinter
from echelon.cli.words import one_line
from echelon.engines.base import Saving
from echelon.errors import EchelonError, ResultsIncomplete, RunLost, UnknownRun
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.status import FINAL
from echelon.model.world import rank_count
from echelon.tending import Tending

_SHOWN_ANYWAY = (
    "recorded",
    "worker-started",
    "worker-running",
    "rank-ended",
    "worker-ended",
    "failed",
    "verdict",
    "stopping",
    "holding",
    "finished",
)


def follow(run: Run, job: Job, format_: str, *, raw: bool = False) -> int:
    """Show the run until it has ended; its exit code is ours. With `raw`, its lines exactly as they are."""
    with run.tending() as tender:
        with _stopping_on_signals(run) as signals:
            render.notice(render.headline(job, run))
            printer: LinePrinter | None = None
            watcher = threading.Thread(target=_attend, args=(run, tender), daemon=True)
            watcher.start()
            try:
                for line in run.raw_logs(Saving(tell=render.notice)):
                    printer = printer or _printer(run, format_, raw=raw)
                    printer.show(line)
                if printer is not None:
                    printer.finish()
            except BrokenPipeError:
                if not signals:
                    render.notice(f"no reader is left; run {run.name} goes on: `echelon logs -f {run.name}`")
                raise
        try:
            trouble = _collect(run, watcher)
            status = run.status()
        except UnknownRun:
            raise RunLost(
                f"run {run.name!r} was removed while it was followed, and its results with it",
                hint="its Job was deleted, or `echelon rm` was called",
            ) from None
    render.ending(status)
    if format_ != "text":
        render.data(status, format_)
    if status.state not in FINAL:
        trouble = trouble or ResultsIncomplete(
            f"how run {run.name!r} ended is not known yet, and its results were not fetched",
            hint=f"`echelon wait {run.name}` goes on",
        )
    code = 128 + signals[0] if signals and status.state == "stopped" else status.exit_code or 0
    return render.final_code(code, trouble)


def _printer(run: Run, format_: str, *, raw: bool) -> LinePrinter:
    """Show a single rank's lines as it wrote them. Made for the first line: until then there may be no
    plan.
    """
    plan = run.plan()
    only_rank = plan is not None and rank_count(plan.world) == 1
    return LinePrinter(prefix=not only_rank, to_stderr=format_ != "text", raw=raw)


def report_waiting(run: Run) -> None:
    """Report, in a thread of its own, why a run that another command follows does not run yet."""
    kinds = ("queued", "waiting")
    threading.Thread(target=_report_events, args=(run, kinds), name="events", daemon=True).start()


def _attend(run: Run, tender: Tending) -> None:
    """Report events, and fetch the results as soon as the run is over: a slow reader of its output, such as a
    pager, may still be reading when the workers have gone.
    """
    _report_events(run, on_end=lambda end: tender.finish(end, lambda: render.collecting(run)))


def _collect(run: Run, watcher: threading.Thread) -> EchelonError | None:
    """Fetch the results. What goes wrong with that does not hide how the run ended."""
    try:
        watcher.join()
        render.collecting(run)
    except KeyboardInterrupt:
        render.notice(f"not all results were fetched; `echelon get {run.name}` goes on with it")
        raise
    except UnknownRun:
        raise
    except EchelonError as error:
        return error
    return None


@contextlib.contextmanager
def _stopping_on_signals(run: Run) -> Iterator[list[int]]:
    """Stop the run at the first Ctrl-C (or SIGTERM), kill it at the second; yields the signals that came.

    A thread does it, since a signal can arrive in the middle of a line being printed, when nothing else may
    be printed. A run that cannot be stopped (its cluster does not respond) is left alone at the next."""
    came: list[int] = []
    signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    unreachable = threading.Event()

    def stop_run() -> None:
        while (number := signals.get()) is not None:
            came.append(number)
            first = len(came) == 1
            notice("stopping; once more kills" if first else "killing")
            try:
                run.stop(now=not first, wait=False)
                unreachable.clear()
            except (EchelonError, OSError) as error:
                unreachable.set()
                notice(f"it cannot be stopped: {error}; once more leaves it alone")

    def notice(text: str) -> None:
        with contextlib.suppress(OSError):  # the reader may have died of the same Ctrl-C (`| tee`)
            render.notice(text)

    def on_signal(number: int, _frame: object) -> None:
        if unreachable.is_set():
            raise KeyboardInterrupt
        signals.put(number)

    stopping = threading.Thread(target=stop_run, daemon=True)
    stopping.start()
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signals.put(None)
        stopping.join()


def _report_events(
    run: Run, kinds: Sequence[str] | None = None, on_end: Callable[[Event], object] = lambda _: None
) -> None:
    queued = False
    with contextlib.suppress(EchelonError, OSError):  # reading the lines fails in the same way
        for event in run.events():
            if event.kind == "finished":
                on_end(event)
            text = _describe(event, was_queued=queued)
            queued = event.kind == "queued"
            if text and (kinds is None or event.kind in kinds):
                render.notice(one_line(text))


def _describe(event: Event, *, was_queued: bool) -> str | None:
    if event.kind == "admitted":
        return "starting" if was_queued else None
    if event.kind == "restarting" and event.cause is not None:
        return f"restart {event.restart}: {event.cause.summary}"
    if event.kind == "worker-lost":
        return f"worker {event.worker} is lost: {event.reason}"
    return None if event.kind in _SHOWN_ANYWAY else event.reason
