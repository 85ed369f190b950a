"""A run as HTML in a notebook: how it stands and its curves, drawn anew while it is active.

The same panel may be shown by several cells: a notebook updates all that have its id. It only reads."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from echelon.errors import EchelonError
from echelon.metrics.curves import Curves
from echelon.model.display import as_html
from echelon.model.event import Event
from echelon.model.output.metric import Metric
from echelon.model.status import FINAL, Status

_PAUSE = 1.0  # seconds between two drawings
_LAST = 30.0  # seconds that the last drawing of a run that is over may take to come
_NUMBERS = itertools.count(1)


class Shown(Protocol):
    """A run, as far as it is shown."""

    def status(self) -> Status:
        """How it stands."""
        ...

    def observe(self, *, follow: bool = False, events: bool = True) -> Iterator[Event | Metric]:
        """What happens and is measured."""
        ...


class Panel:
    """One run, followed from the first time that it is shown."""

    def __init__(self, run: Shown) -> None:
        self.curves = Curves()
        self.over = threading.Event()
        self._run = run
        self._id = f"echelon-{os.getpid()}-{next(_NUMBERS)}"
        self._cells: set[int] = set()  # that show it
        self._kept: int | None = None  # the cell that has a place for it, empty until there is a curve
        self._table = ""
        self._stale = True  # whether the table is from before the last event
        self._news = threading.Event()
        self._drawing: threading.Thread | None = None

    @property
    def is_here(self) -> bool:
        """Whether the cell that runs now shows it already."""
        return _this_cell() in self._cells

    def show(self) -> None:
        """Show it in this cell."""
        self._publish(update=False)
        self._cells.add(_this_cell())
        self._follow()

    def show_curves(self) -> None:
        """Keep a place for it in this cell, above what the ranks write, and show it there as soon as there is
        a curve; `settle` comes before the cell's end.
        """
        if not self.is_here:
            if not self._cells:
                self._send({"text/plain": "", "text/html": ""}, update=False)
            else:
                self._publish(update=False)
            self._kept = _this_cell()
        self._follow()

    def settle(self) -> None:
        """The run is over: have the last of it shown."""
        if self._drawing is not None:
            self._drawing.join(_LAST)

    def _follow(self) -> None:
        if self._drawing is None:
            self._drawing = threading.Thread(target=self._draw, name="drawing", daemon=True)
            threading.Thread(target=self._take, name="measuring", daemon=True).start()
            self._drawing.start()

    def _take(self) -> None:
        try:
            with suppress(EchelonError, OSError):  # the table says how the run stands
                for item in self._run.observe(follow=True):
                    if isinstance(item, Metric):
                        self.curves.add(item)
                    else:
                        self._stale = True
                    self._news.set()
        finally:
            self._stale = True
            self.over.set()
            self._news.set()

    def _draw(self) -> None:
        last = False
        while not last:
            self._news.wait()
            self._news.clear()
            last = self.over.is_set()  # before the look: what comes later is drawn once more
            with suppress(EchelonError, OSError):
                if self._kept is not None and self.curves.count:
                    self._cells.add(self._kept)
                    self._kept = None
                if self._cells:
                    self._publish(update=True)
            if not last:
                self.over.wait(_PAUSE)

    def _publish(self, *, update: bool) -> None:
        if self._stale:
            self._stale = False
            self._table = _table(self._run)
        page = _joined(self._table, self.curves)
        self._send({"text/plain": repr(self._run), "text/html": page}, update=update)

    def _send(self, data: dict[str, str], *, update: bool) -> None:
        from IPython.display import publish_display_data

        publish: Any = publish_display_data  # it has no types
        publish(data, transient={"display_id": self._id}, update=update)


class Display:
    """How a run shows itself: as one panel for all cells while it is active, and as a page at any time."""

    def __init__(self, run: Shown) -> None:
        self._run = run
        self._panel: Panel | None = None

    def page(self) -> str:
        """The run as HTML as it stands; what a panel has read to the end is not read again."""
        table = _table(self._run)
        if self._panel is not None and self._panel.over.is_set():
            return _joined(table, self._panel.curves)
        curves = Curves()
        with suppress(EchelonError, OSError):  # the table says how the run stands
            for item in self._run.observe(events=False):
                if isinstance(item, Metric):
                    curves.add(item)
        return _joined(table, curves)

    def show(self) -> bool:
        """Show an active run in this cell; any other is not shown."""
        if self._panel is not None and self._panel.is_here:
            return True
        with suppress(EchelonError):
            if self._run.status().state not in (*FINAL, "damaged"):
                self._live().show()
                return True
        return False

    @contextmanager
    def curves(self) -> Iterator[None]:
        """Show its curves in this cell, as soon as there are some, while the block waits for its end."""
        panel = self._live()
        panel.show_curves()
        yield
        panel.settle()

    def _live(self) -> Panel:
        if self._panel is None or self._panel.over.is_set():  # it may have been resumed since
            self._panel = Panel(self._run)
        return self._panel


def _table(run: Shown) -> str:
    try:
        return run.status()._repr_html_()
    except EchelonError as error:
        return as_html([("run", str(run)), ("state", str(error))])


def _joined(table: str, curves: Curves) -> str:
    from echelon.metrics.picture import as_image

    return f"{table}{as_image(curves.charts())}"


def _this_cell() -> int:
    shell: Any = sys.modules["IPython"].get_ipython()
    return int(shell.execution_count)
