"""A run in the foreground: its output as it comes, a notice of each event, Ctrl-C, and the end."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from echelon.agent import stopping
from echelon.cli.following.bottom import are_possible
from echelon.cli.following.lines import LinePrinter, PartPrinter, StepColours, StepNotices
from echelon.cli.following.terminal import Terminal
from echelon.cli.printing import render
from echelon.cli.printing.progress import CopyProgress
from echelon.cli.printing.recent import Recent
from echelon.cli.printing.words import one_line, resized_event
from echelon.engines.base import Saving
from echelon.errors import EchelonError, OutputFailed, ResultsIncomplete, RunLost, UnknownRun
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import GRACE, Job
from echelon.model.output.log import LogBlock
from echelon.model.run import StopSignal
from echelon.model.status import FINAL, Status, describe_notice, fold
from echelon.model.world import rank_count
from echelon.tending import Tending

if TYPE_CHECKING:
    from echelon.cli.following.bottom import PaintedLines

_LINE_PATIENCE = 5.0  # seconds that a message about a failure waits for the rank's last line
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

_STOPPING: dict[StopSignal, str] = {
    "SIGINT": "stopping: the ranks get SIGINT; once more sends SIGTERM",
    "SIGTERM": "stopping: the ranks get SIGTERM; once more kills",
    "SIGKILL": "killing",
}


def follow(
    run: Run,
    job: Job,
    format_: str,
    *,
    raw: bool = False,
    only: Collection[int] = (),
    terminal: Terminal | None = None,
    advise: Callable[[Status], str | None] = lambda _: None,
    as_data: Callable[[Status], object] = lambda status: status,
) -> int:
    """Show the run until it has ended; its exit code is ours. With `raw`, its lines exactly as they are; with
    `only`, those of some ranks. A rank that has our terminal writes to it itself. `advise` may know what to
    do about its end; `as_data` is what is printed of it as data.
    """
    recent = Recent()
    if terminal is not None:
        terminal.on_output = partial(recent.note, 0)
    tracking = run.tracking(render.notice) if job.tracking is not None else None
    with tracking or contextlib.nullcontext():
        with run.tending() as tender:
            with stopping_on_signals(run, job.grace) as signals:
                render.notice(render.headline(job, run))
                below: PaintedLines | None = None
                colours = StepColours()
                if terminal is None and not raw and are_possible(to_stderr=format_ != "text"):
                    below = lines_below(run, job, colours, samples=True)
                ends: list[Event] = []
                watcher = threading.Thread(
                    target=_attend, args=(run, tender, _LastLine(recent, only), below, ends), daemon=True
                )
                watcher.start()
                try:
                    if terminal is None or not terminal.relay():
                        with below or contextlib.nullcontext():
                            how = {"to_stderr": format_ != "text", "raw": raw, "only": only, "recent": recent}
                            _show(run, lambda: printer_of(run, job, colours, below=below, **how))
                except (BrokenPipeError, OutputFailed) as error:
                    if not signals:
                        why = "no reader is left" if isinstance(error, BrokenPipeError) else error.message
                        with contextlib.suppress(OSError):
                            render.notice(f"{why}; run {run.name} continues: `echelon logs -f {run.name}`")
                    raise
            try:
                trouble = _collect(run, watcher)
                # The source of the end may be gone by now, and another one not be there yet.
                shown = run.status(progress=False)
                status = fold(shown, ends)
            except UnknownRun:
                raise RunLost(
                    f"run {run.name!r} was removed while it was followed, and its results with it",
                    hint="its Job was deleted, or `echelon rm` was called",
                ) from None
        render.ending(status, recent, resumable=run.resumable(job))
        if tracking is not None:
            tracking.end(status)
        if advice := advise(status):
            render.notice(one_line(advice))
        if format_ != "text":
            render.data(as_data(status), format_)
        if shown.state not in FINAL:  # nor was its end for the one that fetches results, perhaps
            what = "was seen once and is not shown now" if ends else "is not known yet"
            trouble = trouble or ResultsIncomplete(
                f"how run {run.name!r} ended {what}, and its results were not fetched",
                hint=f"`echelon wait {run.name}` continues",
            )
        if terminal is not None and terminal.interrupted:
            signals.append(signal.SIGINT)
        code = 128 + signals[0] if signals and status.state == "stopped" else status.exit_code or 0
        return render.final_code(code, trouble)


def lines_below(run: Run, job: Job, colours: StepColours, *, samples: bool = False) -> PaintedLines:
    """What stands at the bottom of a terminal while a run is followed."""
    if job.program is not None:
        from echelon.cli.following.worker_lines import PartLines

        return PartLines(run.name, run.uri, colours)
    from echelon.cli.following.worker_lines import WorkerLines

    return WorkerLines(run, job.metric_patterns, run.samples() if samples else None)


def printer_of(run: Run, job: Job, colours: StepColours, **how: Any) -> LinePrinter:
    """What prints a run's lines: with their steps, with their ranks, or those of a single rank as it wrote
    them.
    """
    if job.program is not None:
        return PartPrinter(colours, **how)
    plan = run.plan()
    return LinePrinter(prefix=plan is None or rank_count(plan.world) != 1, **how)


def _show(run: Run, printer_of_run: Callable[[], LinePrinter]) -> None:
    """Print the run's lines as they come."""
    printer: LinePrinter | None = None
    for piece in run.raw_logs(Saving(tell=render.notice)):
        if printer is None:  # until the first line there may be no plan
            printer = printer_of_run()
        if isinstance(piece, LogBlock):
            printer.show_block(piece)
        else:
            printer.show(piece)
    if printer is not None:
        printer.finish()


def report_waiting(run: Run, below: PaintedLines | None = None) -> None:
    """Report, in a thread of its own, why a run that another command follows does not run yet."""
    kinds = ("queued", "waiting")
    threading.Thread(target=_report_events, args=(run, kinds, below), name="events", daemon=True).start()


class _LastLine:
    """Lets a message about a rank's failure wait for the last line of that rank."""

    def __init__(self, recent: Recent, only: Collection[int]) -> None:
        self._recent = recent
        self._only = only

    def wait(self, event: Event) -> None:
        cause = event.cause
        if cause is None or cause.rank is None or not cause.tail or not cause.tail[-1].strip():
            return
        if not self._only or cause.rank in self._only:
            self._recent.wait_for(cause.rank, cause.tail[-1], _LINE_PATIENCE)


def _attend(
    run: Run, tender: Tending, last_line: _LastLine, below: PaintedLines | None, ends: list[Event]
) -> None:
    """Report events, and fetch the results as soon as the run is over: a slow reader of its output, such as a
    pager, may still be reading when the workers have gone. The end is added to `ends`.
    """

    def end_with(end: Event) -> None:
        ends.append(end)
        tender.finish(end, lambda: render.collecting(run))

    _report_events(
        run,
        on_end=end_with,
        on_restart=last_line.wait,
        on_leader=lambda: _deliver(run),
        below=below,
    )


def _deliver(run: Run) -> None:
    """Send the code that a run may wait for, beside everything else that is done for it."""

    def send() -> None:
        with contextlib.suppress(EchelonError, OSError):  # the run's end tells
            run.deliver(CopyProgress("code"))

    threading.Thread(target=send, name="sending code", daemon=True).start()


def _collect(run: Run, watcher: threading.Thread) -> EchelonError | None:
    """Fetch the results. What goes wrong with that does not hide how the run ended."""
    try:
        watcher.join()
        render.collecting(run)
    except KeyboardInterrupt:
        render.notice(f"not all results were fetched; `echelon get {run.name}` continues")
        raise
    except UnknownRun:
        raise
    except EchelonError as error:
        return error
    return None


@contextlib.contextmanager
def stopping_on_signals(run: Run, grace: float = GRACE) -> Iterator[list[int]]:
    """Stop the run at the first Ctrl-C: SIGINT to its ranks, SIGTERM at the second, SIGKILL at the third; a
    SIGTERM to this process begins with SIGTERM. Yields the signals that came.

    A thread does it, since a signal can arrive in the middle of a line being printed, when nothing else may
    be printed. A run that cannot be stopped (its cluster does not respond) is left alone at the next."""
    came: list[int] = []
    signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    unreachable = threading.Event()

    def stop_run() -> None:
        asked: StopSignal | None = None
        asked_at = 0.0
        while (number := signals.get()) is not None:
            came.append(number)
            if asked == "SIGINT" and time.monotonic() - asked_at > grace:
                asked = "SIGTERM"  # which the ranks have got by now
            asked, asked_at = _next_signal(number, asked), time.monotonic()
            notice(_STOPPING[asked])
            try:
                if note := run.stop(signal=asked, wait=False):
                    notice(note)
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

    stopper = threading.Thread(target=stop_run, daemon=True)
    stopper.start()
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signals.put(None)
        stopper.join()


def _next_signal(number: int, asked: StopSignal | None) -> StopSignal:
    """What the ranks get for a signal to this process, after what was asked for already."""
    first: StopSignal = "SIGINT" if number == signal.SIGINT else "SIGTERM"
    if asked is None or stopping.is_harder(first, asked):
        return first
    return "SIGTERM" if asked == "SIGINT" else "SIGKILL"


def _report_events(
    run: Run,
    kinds: Sequence[str] | None = None,
    below: PaintedLines | None = None,
    on_end: Callable[[Event], object] = lambda _: None,
    on_restart: Callable[[Event], object] = lambda _: None,
    on_leader: Callable[[], object] = lambda: None,
) -> None:
    queued, steps = False, StepNotices()
    with contextlib.suppress(EchelonError, OSError):  # reading the lines fails in the same way
        for event in run.events():
            if below is not None:
                below.take(event)
            if event.kind == "finished":
                on_end(event)
            elif event.kind == "restarting":
                on_restart(event)
            elif event.kind == "worker-started" and event.worker == 0:
                on_leader()
            texts = [_describe(event, was_queued=queued), *steps.of(event)]
            queued = event.kind == "queued"
            if kinds is None or event.kind in kinds:
                for text in filter(None, texts):
                    render.notice(one_line(text))
                for place in event.places or ():
                    render.notice(f"  {one_line(place)}")


def _describe(event: Event, *, was_queued: bool) -> str | None:
    if event.kind == "admitted":
        return "starting" if was_queued else None
    if event.kind == "restarting" and event.cause is not None:
        return f"restart {event.restart}: {event.cause.summary}"
    if event.kind in ("notice", "resizing"):
        return describe_notice(event)
    if event.kind == "resized":
        return resized_event(event)
    if event.kind == "worker-lost":
        return f"worker {event.worker} is lost: {event.reason}"
    return None if event.kind in _SHOWN_ANYWAY else event.reason
