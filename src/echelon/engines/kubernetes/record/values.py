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
    """What is known of a run by its record and, from `shape` on, by its Jobs. `version` is the API server's
    own count of changes to the record.
    """

    run: Record  # with its plan, once it is admitted
    uid: str
    version: str = ""
    dialect: str = "job"
    shipped: Shipped = Shipped()
    stop: Stop | None = None
    end: Event | None = None
    collected: Collected | None = None
    claim: Claim | None = None
    owners: frozenset[str] = frozenset()  # uids of the objects that it goes with, once all of them are there
    deleted: float | None = None
    shape: Plan | None = None  # the plan that its Jobs have, or would start with
    queued: tuple[Waiting, ...] = ()
    tried: float | None = None  # when admission was last tried
    admitted: float | None = None
    whole: bool = False  # all pods of its gang were on nodes once, or it was left to the scheduler

    @property
    def started(self) -> bool:
        """Whether the run was admitted."""
        return self.run.plan is not None

    @property
    def may_have_run(self) -> bool:
        """Whether the run was admitted, or had Jobs that are gone."""
        return self.started or (bool(self.owners) and self.shape is None)


def identity(stored: Stored) -> Identity:
    """What the objects of a run are known by."""
    return Identity(run=stored.run.ref.name, record=stored.uid, jobs=stored.owners)
