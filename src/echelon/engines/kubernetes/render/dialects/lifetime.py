"""How long the objects of a run's workers stay after its end: the same for all dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echelon.model.run import Record

_LEAVING = 3600.0  # seconds beyond a keeper's time: it begins again at each contact with a client


def time_to_live(record: Record) -> float:
    """The run is forgotten with its objects, and with it what a keeper holds: not before its time is over."""
    options = record.job.pod
    return options.ttl if options.keeper is None else max(options.ttl, options.keeper.keep + _LEAVING)
