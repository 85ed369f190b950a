"""What is going on with a run, by what other commands read too: status, events, newest samples."""

from __future__ import annotations

import time

from echelon.engines.base import Engine
from echelon.errors import EchelonError
from echelon.model.engine.sample import Samples
from echelon.model.engine.usage import usage_of
from echelon.model.run import RunRef
from echelon.model.status import Status
from echelon.observation.reasons import Reason, arranged, reasons
from echelon.observation.starts import later_starts


def look(engine: Engine, ref: RunRef, status: Status, advice: str | None = None) -> tuple[Reason, ...]:
    """The reasons of a run that stands so, without those of its steps. What keeps its samples from being read
    is one of them.
    """
    samples, trouble = Samples(), None
    if status.state == "running" and engine.sampling is not None and not status.steps:
        try:
            samples = engine.sampling.newest(ref)
        except EchelonError as error:
            trouble = error
    starts = later_starts(engine, ref) if status.state not in ("damaged", "recorded", "queued") else []
    found = reasons(status, usage_of(status, samples), time.time(), starts, advice)
    if trouble is None:
        return found
    text = f"who is slow is not known: {trouble.message}"
    return arranged([*found, Reason(kind="unknown", text=text, hint=trouble.hint)])
