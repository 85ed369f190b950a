"""The record of a run: the ConfigMap that reserves its name, and that any process with the same rights reads.

`reading` is the border where the object, which any user with rights in the namespace may have written,
becomes a `Stored` value (`values`); `changes` are the changes that are ever made to it; `keys` are its keys
and annotations. Whether the run is admitted, and as what, its Jobs say (`ledger.py`)."""

from __future__ import annotations

from echelon.engines.kubernetes.record.changes import (
    claimed,
    finished,
    new,
    renewed,
    stopping,
    tasked,
    tied,
    with_reason,
)
from echelon.engines.kubernetes.record.phases import (
    SUBMISSION,
    is_abandoned,
    is_free,
    is_queued,
    is_untended,
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
    "Claim",
    "Collected",
    "Shipped",
    "Stop",
    "Stored",
    "Waiting",
    "check_plan",
    "claimed",
    "dialect_of",
    "finished",
    "has_end",
    "identity",
    "is_abandoned",
    "is_free",
    "is_queued",
    "is_untended",
    "new",
    "read",
    "read_moment",
    "read_stop",
    "read_waits",
    "renewed",
    "stopping",
    "tasked",
    "tied",
    "with_reason",
]
