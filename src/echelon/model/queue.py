"""A queue of runs as values: who waits, who holds what, the rules, and what was decided for each.

Runs are named as the holders of GPUs are: `namespace/run` in a cluster, `run` on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.world import World
from echelon.values import frozen

OVERTAKE = 600.0
"""Seconds after its submission from which no run behind a run takes what that run could use."""


@frozen
class QueuedRun:
    """A run that waits to be admitted. `priority` is what counts, not what was asked for."""

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
    namespace: str = ""
    ends: float | None = None


@frozen
class Limits:
    """How many GPUs the runs of one user, and of one namespace, hold at a time; None: no limit.

    `users` and `namespaces` have those that differ from the rest."""

    user: int | None = None
    namespace: int | None = None
    users: Mapping[str, int] = field(default_factory=dict)
    namespaces: Mapping[str, int] = field(default_factory=dict)


@frozen
class Rules:
    """What a queue is ordered by, beside priority and age. In a `strict` one no run with GPUs overtakes
    another: where each run is admitted by a process of its own, which knows no other's time limit.
    """

    limits: Limits = field(default_factory=Limits)
    overtake: float = OVERTAKE
    strict: bool = False


Why = Literal["starts", "no-room", "one-node", "user-limit", "namespace-limit", "reserved", "never"]
"""Why a run starts or waits: it fits; nothing is free; enough is free, but not on one node; a limit is
reached; what it would take is kept for a run ahead of it; it can never start as it is."""


@frozen
class Verdict:
    """What was decided for one queued run; `plan` is set where it starts."""

    run: QueuedRun
    why: Why
    reason: str = ""
    behind: str = ""  # the run that it must not delay
    plan: Plan | None = None


@frozen
class Place:
    """A queued run's place in the queue, from 1, why it waits, and when it could start as far as time limits
    tell.
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
