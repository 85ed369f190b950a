"""The states that a run can be in, and those of a step: of its run, and of one that has none."""

from __future__ import annotations

from typing import Literal

State = Literal[
    "recorded",
    "queued",
    "starting",
    "running",
    "restarting",
    "stopping",
    "succeeded",
    "failed",
    "stopped",
    "timed-out",
    "lost",
    "damaged",  # what was written down of it cannot be read; nothing else is known
]
StepState = Literal[
    "waiting",  # for those before it, or for its turn
    State,
    "cached",  # an earlier run of the same step had its results already
    "kept",  # it succeeded in an earlier start of its parent
    "ended-early",  # of a sweep's trial: it was behind the others
    "not-reached",  # one before it did not succeed, or its parent was stopped
]
