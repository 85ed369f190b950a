"""What the workers of a run use, live: the newest samples, kept up to date by a thread that only reads.

`top` shows them with how each worker stands; the lines of `run` have a few words of each."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Self

from echelon.engines.base import Engine
from echelon.errors import EchelonError
from echelon.model.engine.sample import Samples, WorkerSample
from echelon.model.engine.usage import RunUsage, usage_of
from echelon.model.run import RunRef, opening_status
from echelon.model.status import FINAL, Status, apply


class NewestSamples:
    """The newest sample of each worker, while this context lasts. An engine without samples has none, and
    what keeps them from being read (`trouble`) is not a failure of the run.
    """

    def __init__(self, engine: Engine, ref: RunRef) -> None:
        self._engine = engine
        self._ref = ref
        self._left = threading.Event()
        self.trouble: EchelonError | None = None
        self.all = Samples()

    def of(self, worker: int) -> WorkerSample | None:
        """One worker's; None if its ranks do not run, or have only just begun."""
        return next((each for each in self.all.workers if each.worker == worker), None)

    def __enter__(self) -> Self:
        if self._engine.sampling is not None:
            threading.Thread(target=self._follow, name="samples", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()

    def _follow(self) -> None:
        sampling = self._engine.sampling
        assert sampling is not None
        try:
            for found in sampling.follow(self._ref, self._left):
                self.all = found
                if self._left.is_set():
                    return
        except EchelonError as error:
            self.trouble = error


class LiveUsage:
    """How the workers of a run stand and what they use, while this context lasts."""

    def __init__(self, engine: Engine, ref: RunRef) -> None:
        self._engine = engine
        self._ref = ref
        self._newest = NewestSamples(engine, ref)
        self._status: Status = opening_status(engine.read(ref))
        self._left = threading.Event()
        self._trouble: EchelonError | None = None
        self.ended = threading.Event()

    @property
    def trouble(self) -> EchelonError | None:
        """What keeps its events or its samples from being read."""
        return self._trouble or self._newest.trouble

    def now(self) -> RunUsage:
        """What is known at this moment."""
        return usage_of(self._status, self._newest.all)

    def __enter__(self) -> Self:
        self._newest.__enter__()
        threading.Thread(target=self._follow, name="usage", daemon=True).start()
        return self

    def __exit__(self, *how: object) -> None:
        self._left.set()
        self._newest.__exit__(*how)

    def _follow(self) -> None:
        try:
            self._fold()
        except EchelonError as error:
            self._trouble = error
        finally:
            self.ended.set()

    def _fold(self) -> None:
        for event in self._engine.events(self._ref, follow=True):
            if event.worker is not None and not self._status.workers:  # it was queued when we began
                workers = opening_status(self._engine.read(self._ref)).workers
                self._status = replace(self._status, workers=workers)
            self._status = apply(self._status, event)
            if self._left.is_set() or self._status.state in FINAL:
                return
