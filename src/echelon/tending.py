"""Looking after a run while a command stays with it: admission of a queued run, and the engine's upkeep.

Readers of a run change nothing. What it needs done to it from outside is done by the one process that holds
its tender claim: `run` in the foreground, or a `wait` on a run that this machine submitted. On engines that
look after their runs themselves there is no claim, and nothing to do. Where workers do not write to this
machine, what they print is saved here as it comes: by the command that shows it, or by the tender."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from echelon.admission import admit
from echelon.engines.base import Engine, Saving, TakeOver, Tender
from echelon.errors import EchelonError, Unreachable
from echelon.model.event import Event
from echelon.model.run import RunRef

_FIRST_LOOK = 1.0  # seconds: a run that has just begun needs the processor more than it needs us
_ADMISSION = (1.0, 15.0)  # seconds between two tries to admit a queued run: at first, and at most
_CLAIM_LOOK = 5.0  # seconds between two tries for a claim that another process holds
_KEEPING = 60.0  # seconds that an API server may be away when the end is to be kept
_LAST_LINES = 30.0  # seconds that the last lines of a run that is over may take to come


@contextmanager
def tending(
    ref: RunRef, engine: Engine, *, take_over: TakeOver | None = None, saving: Saving | None = None
) -> Iterator[Tending]:
    """Look after the run inside this context, as far as its claim can be had; with `saving`, save its output
    meanwhile. A command that shows the output saves it itself.
    """
    found = Tending(ref, engine, take_over=take_over, saving=saving)
    found.begin()
    try:
        yield found
    finally:
        found.end()


class Tending:
    """A thread that tries for the run's claim, and does what is due while it has it."""

    def __init__(
        self,
        ref: RunRef,
        engine: Engine,
        *,
        take_over: TakeOver | None = None,
        saving: Saving | None = None,
    ) -> None:
        self._ref = ref
        self._engine = engine
        self._take_over = take_over
        self._saving = saving
        self._saver = threading.Thread(target=self._save, name="saving", daemon=True)
        self._left = threading.Event()
        self._lock = threading.Lock()  # the thread, and the command that keeps an end, take turns
        self._tender: Tender | None = None
        self._thread = threading.Thread(target=self._run, name="tending", daemon=True)
        self._over = False  # the end was seen
        self._next_try, self._pause = 0.0, _ADMISSION[0]

    def is_ours(self) -> bool:
        """Whether it is for this process to keep the end: no other is the run's tender. A claim that is free
        is taken now.
        """
        return self._engine.traits.keeps_queue or self._try_claim()

    def begin(self) -> None:
        """Start the thread, where there is something to do."""
        if not self._engine.traits.keeps_queue:
            self._thread.start()

    def finish(self, end: Event, collect: Callable[[], object]) -> None:
        """The run is over: have its end in the record, then fetch its results. The engine knows whether they
        belong to this machine, whichever of its processes tends the run.

        The end comes first, with one request: fetching releases the workers, and the log that tells the end
        goes with them."""
        self._over = True
        if self.is_ours():
            self.keep(end)
        collect()

    def keep(self, end: Event) -> None:
        """Have the end in the record; an outage is waited for."""
        deadline = time.monotonic() + _KEEPING
        while self.is_ours() and self._tender is not None:
            try:
                with self._lock:
                    self._tender.keep(end)
            except Unreachable:
                if time.monotonic() < deadline:
                    time.sleep(1.0)
                    continue
            except EchelonError:
                pass  # what was not done is done by `collect`, or by the next tender
            return

    def end(self) -> None:
        """Do what is due a last time, and leave the claim to others."""
        self._left.set()
        self._end_saving()
        with self._lock, suppress(EchelonError):  # an API server that is away is not asked twice
            if self._tender is not None:
                self._tender.tend()
                self._tender.release()

    def _end_saving(self) -> None:
        if self._saving is not None:
            if self._saver.ident is not None and self._over:
                self._saver.join(_LAST_LINES)
            self._saving.left.set()
            if self._saver.ident is not None:
                self._saver.join(1.0)

    def _save(self) -> None:
        with suppress(EchelonError):  # what was not saved is fetched at the end
            for _ in self._engine.logs(self._ref, follow=True, saving=self._saving):
                pass

    def _run(self) -> None:
        pause = _FIRST_LOOK
        while not self._left.wait(pause):
            pause = _CLAIM_LOOK
            with suppress(EchelonError):
                if self._try_claim():
                    pause = self._tend()

    def _try_claim(self) -> bool:
        if self._tender is None:
            with suppress(EchelonError), self._lock:
                self._tender = self._engine.tender(self._ref, take_over=self._take_over)
                if self._tender is not None:
                    self._begin_saving()
        return self._tender is not None

    def _begin_saving(self) -> None:
        """Save the output from now on; not that of a run that is over, whose logs come with its results: what
        is saved beside them would stay there.
        """
        if self._saving is not None and self._saver.ident is None and not self._over:
            self._saver.start()

    def _tend(self) -> float:
        with self._lock:
            if self._tender is None or self._left.is_set():
                return _CLAIM_LOOK
            pause = self._tender.tend()
            if not self._tender.held:
                self._tender = None  # another process took it over
                return _CLAIM_LOOK
            if not self._tender.queued:
                return pause
            if time.monotonic() >= self._next_try:
                self._admit()
                # Of two that roll each other back, one tries again before the other.
                self._next_try = time.monotonic() + self._pause * random.uniform(0.6, 1.4)  # noqa: S311
                self._pause = min(2 * self._pause, _ADMISSION[1])
            return min(pause, self._next_try - time.monotonic())

    def _admit(self) -> None:
        """Start the run if it fits now. What keeps it out, or us from trying, may be gone the next time."""
        try:
            admit(self._ref, self._engine)
        except EchelonError as error:
            with suppress(EchelonError):
                self._engine.queue(self._ref, str(error))
