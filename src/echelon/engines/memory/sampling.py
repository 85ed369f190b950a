"""What the ranks of scripted runs use, which changes only at their end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

from echelon.model.engine.sample import Samples
from echelon.model.run import RunRef

_LOOK = 0.05  # seconds between two looks whether a run has ended


class Sampled(Protocol):
    """What is asked of the memory engine."""

    def sample(self, ref: RunRef) -> Samples:
        """What the ranks of a run use that last."""
        ...


class ScriptedSampling:
    """The samples of scripted runs."""

    def __init__(self, engine: Sampled) -> None:
        self._engine = engine

    def newest(self, ref: RunRef) -> Samples:
        """What its script says."""
        return self._engine.sample(ref)

    def follow(self, ref: RunRef, left: threading.Event) -> Iterator[Samples]:
        """The same, once, and nothing at the end."""
        found = self._engine.sample(ref)
        yield found
        while found.workers and not left.wait(_LOOK):
            found = self._engine.sample(ref)
        if not left.is_set():
            yield found
