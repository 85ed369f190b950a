"""A queue of runs as values: who waits, who holds what, and what was decided for each.

Runs are named as the holders of GPUs are: `namespace/run` in a cluster, `run` on this machine."""

from __future__ import annotations

from typing import Literal

from echelon.model.job import Job
from echelon.model.world import World
from echelon.values import frozen


@frozen
class QueuedRun:
    """A run that waits to be admitted."""

    name: str
    job: Job
    since: float
    gpus: int  # the least that it can start with
    priority: int = 0
    user: str = ""
    namespace: str = ""
    world: World | None = None  # the only shape that it can start with, if there is one
    noted: str = ""  # why it was not admitted when that was last tried


@frozen
class HoldingRun:
    """A run that has its place; it ends at `ends` at the latest, if it has a time limit."""

    name: str
    gpus: int
    user: str = ""
    ends: float | None = None


Why = Literal["starts", "no-room", "reserved", "never", "elsewhere"]
"""Why a run starts or waits: it fits; nothing is free; a run ahead of it waits; it can never start; Kueue or
the scheduler decides on it."""


@frozen
class Verdict:
    """What was decided for one queued run."""

    run: QueuedRun
    why: Why
    reason: str = ""


@frozen
class Place:
    """A queued run's place in the queue, from 1, why it waits, and when it could start as far as time limits
    tell; 0 for one that waits elsewhere.
    """

    name: str
    position: int
    why: Why
    reason: str
    priority: int = 0
    gpus: int = 0
    since: float = 0.0
    user: str = ""
    namespace: str = ""
    earliest: float | None = None
