"""The record of a run: the ConfigMap that reserves its name, and that any process with the same rights reads.

`reading` is the border where the object, which any user with rights in the namespace may have written,
becomes a `Stored` value (`values`); `phases` says how far its run came; `changes` are the changes that are
ever made to it; `outline` is what lists of thousands read of it; `keys` are its keys and annotations."""

from __future__ import annotations

from echelon.engines.kubernetes.record.changes import (
    admitted,
    claimed,
    finished,
    new,
    queued,
    renewed,
    started,
    stopping,
    tied,
    with_reason,
)
from echelon.engines.kubernetes.record.outline import TRIED_WITHIN, Outline, created, is_queued, leaves_queue
from echelon.engines.kubernetes.record.phases import (
    SUBMISSION,
    Phase,
    is_abandoned,
    is_free,
    is_untended,
    phase_of,
)
from echelon.engines.kubernetes.record.reading import (
    check_plan,
    dialect_of,
    has_end,
    read,
    read_moment,
    read_stop,
    read_waits,
)
from echelon.engines.kubernetes.record.values import (
    Claim,
    Collected,
    Shipped,
    Stop,
    Stored,
    Waiting,
    identity,
)

__all__ = [
    "SUBMISSION",
    "TRIED_WITHIN",
    "Claim",
    "Collected",
    "Outline",
    "Phase",
    "Shipped",
    "Stop",
    "Stored",
    "Waiting",
    "admitted",
    "check_plan",
    "claimed",
    "created",
    "dialect_of",
    "finished",
    "has_end",
    "identity",
    "is_abandoned",
    "is_free",
    "is_queued",
    "is_untended",
    "leaves_queue",
    "new",
    "phase_of",
    "queued",
    "read",
    "read_moment",
    "read_stop",
    "read_waits",
    "renewed",
    "started",
    "stopping",
    "tied",
    "with_reason",
]
