"""What a run's ranks write, shown as it comes by a Python call that waits for the run: in a notebook's cell.

The command line has its own way to show a run (`cli/following/follow.py`), with signals and a terminal to
care for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from echelon.errors import EchelonError
from echelon.model.event import Event
from echelon.model.output.log import LogLine

_LAST_LINES = 30.0  # seconds that the last lines of a run that is over may take to come


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def tell(note: str) -> None:
    """Print a word to the user, where a cell and a script show it."""
    with suppress(OSError, ValueError, AttributeError):  # standard error is closed, or there is none
        sys.stderr.write(f"echelon: {' '.join(note.split())}\n")
        sys.stderr.flush()


def tell_waiting(event: Event) -> None:
    """Print why a run does not run yet."""
    if event.kind in ("queued", "waiting") and event.reason:
        tell(event.reason)


@contextmanager
def noted_if_left(name: str) -> Iterator[None]:
    """Say in the traceback of a Ctrl-C, or of an interrupted cell, that it has not ended the run."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"run {name!r} continues; run.stop() or `echelon stop {name}` ends it")
        raise


@contextmanager
def shown(lines: Callable[[], Iterator[LogLine]], *, prefix: Callable[[], bool]) -> Iterator[None]:
    """Print a run's lines while the block runs, and what is left of them after it; when it raises, no more.
    `prefix` says, once the first line is there, whether each gets its rank.
    """
    left = threading.Event()
    printer = threading.Thread(target=_print, args=(lines, prefix, left), name="showing", daemon=True)
    printer.start()
    try:
        yield
        printer.join(_LAST_LINES)
    finally:
        left.set()


def _print(lines: Callable[[], Iterator[LogLine]], prefix: Callable[[], bool], left: threading.Event) -> None:
    named: bool | None = None
    painted: tuple[TextIO, int] | None = None  # where the state of a progress bar stands, and its width
    with suppress(
        EchelonError, OSError, ValueError
    ):  # the call that waits raises it, or the output is closed
        for line in lines():
            if left.is_set():
                return
            named = prefix() if named is None else named
            stream = sys.stderr if line.stream == "stderr" else sys.stdout
            text = str(line) if named else line.text
            if line.progress and not (stream.isatty() or in_notebook()):
                continue  # nothing can be painted over there; the line that the bar becomes follows
            over = 0
            if painted is not None and painted[0] is stream:
                over = painted[1]
            elif painted is not None:
                painted[0].write("\n")
            stream.write(("\r" if over else "") + text.ljust(over) + ("" if line.progress else "\n"))
            stream.flush()
            painted = (stream, max(over, len(text))) if line.progress else None
        if painted is not None:
            painted[0].write("\n")
