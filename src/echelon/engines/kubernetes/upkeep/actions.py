"""What a run may need done to it from outside."""

from __future__ import annotations

from echelon.engines.kubernetes.record import Stop
from echelon.model.event import Event
from echelon.values import frozen


@frozen
class TieRecord:
    """Let the record go with the run's Jobs: the client that made them was cut off right after."""


@frozen
class CompleteStart:
    """Make and release the Jobs that a client which was cut off has not."""


@frozen
class FreePod:
    """Declare a dead node's pod failed, so that the Job controller replaces it."""

    pod: str
    uid: str = ""


@frozen
class GiveUp:
    """End a run that waits for what will not come."""

    reason: str


@frozen
class EndJobs:
    """End the pods of a run whose stop was left in the record and not carried out."""


@frozen
class EndLeftOver:
    """End the Jobs that go on though the run is over and its leader has left."""

    end: Event


@frozen
class SeeWhole:
    """Note that an admitted gang has its nodes: from now on a lost worker is replaced, and nothing undone."""


@frozen
class RollBack:
    """Make an admitted gang wait again that did not get all of its nodes in time."""

    reason: str


@frozen
class Withdraw:
    """End a run that has been queued for too long."""

    stop: Stop


@frozen
class KeepEnd:
    """Write the end into the record: the log that has it may be rotated, or its node be lost."""

    end: Event


@frozen
class DropPayload:
    """Delete code, Secret and Service of a run that is over: no pod of it will start again."""


@frozen
class LookAfter:
    """Finish or undo the admission of another run of the namespace, whose own tender is gone: it would hold
    nodes for ever, and keep others waiting.
    """

    run: str


Action = (
    TieRecord
    | CompleteStart
    | FreePod
    | GiveUp
    | EndJobs
    | EndLeftOver
    | SeeWhole
    | RollBack
    | Withdraw
    | KeepEnd
    | DropPayload
    | LookAfter
)
