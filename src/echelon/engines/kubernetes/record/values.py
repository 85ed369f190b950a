"""What a record is, once it is read. Values alone."""

from __future__ import annotations

from typing import Literal

from echelon.engines.kubernetes.ownership.belonging import Identity
from echelon.model.event import Event
from echelon.model.plan import Plan
from echelon.model.run import Record
from echelon.values import frozen


@frozen
class Shipped:
    """What a run was shipped: sizes in bytes, 0 for what was not; digests of the code and of the rest. `sent`
    is the size of code that is sent to worker 0 when it has started.
    """

    agent: int = 0
    code: int = 0
    wheel: int = 0
    requirements: int = 0
    digest: str = ""
    rest: str = ""
    sent: int = 0


@frozen
class Stop:
    """A request, kept in the record, that the run ends; `outcome` is what it ends as."""

    at: float
    reason: str
    outcome: Literal["stopped", "failed", "timed-out"] = "stopped"
    now: bool = False
    grace: float | None = None  # seconds that its ranks have, where the stop says so


@frozen
class Waiting:
    """Why a run was queued, and since when for that reason. `admitted` is when it was admitted before, and
    then rolled back.
    """

    at: float
    reason: str
    admitted: float | None = None


@frozen
class Collected:
    """When a run's results were fetched, and to which folder of which machine; no path if there were none.
    `missing` is what was lost before, and is in no folder: a sentence for each worker.
    """

    at: float = 0.0
    host: str = ""
    path: str = ""
    missing: tuple[str, ...] = ()


@frozen
class Claim:
    """The tender claim: which process looks after the run from outside, until when if it is not renewed."""

    holder: str
    until: float


@frozen
class Stored:
    """A record as it is in the cluster. `version` is the API server's own count of changes to it."""

    run: Record
    uid: str
    version: str = ""
    dialect: str = "job"
    shipped: Shipped = Shipped()
    queued: tuple[Waiting, ...] = ()
    admitted: float | None = None
    started: bool = False
    stop: Stop | None = None
    end: Event | None = None
    collected: Collected | None = None
    claim: Claim | None = None
    tried: float | None = None  # when admission was last tried, while it is queued
    owners: frozenset[str] = frozenset()  # uids of the objects that it goes with
    held: bool = False  # its Jobs exist from the beginning; what follows is what they say
    shape: Plan | None = None  # the plan that the Jobs would start with
    whole: bool = False  # all pods of its gang were on nodes once
    deleted: float | None = None


def identity(stored: Stored) -> Identity:
    """What the objects of a run are known by."""
    return Identity(run=stored.run.ref.name, record=stored.uid, jobs=stored.owners)
