"""The part of a record that shows whether its run is queued, for lists of thousands."""

from __future__ import annotations

import msgspec

from echelon.engines.kubernetes.fields import json_object
from echelon.engines.kubernetes.record import keys
from echelon.engines.kubernetes.record.reading import read_moment

TRIED_WITHIN = 60.0  # seconds; a tender tries to admit its queued run at least every 15


class _Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    pass


class _Notes(_Shape, frozen=True):
    stop: str | None = msgspec.field(name=keys.STOP, default=None)
    tried: str | None = msgspec.field(name=keys.TRIED, default=None)


class _Meta(_Shape, frozen=True):
    name: str
    namespace: str = ""
    annotations: _Notes = _Notes()
    deletion_timestamp: str | None = None


class _Data(_Shape, frozen=True):
    record: str = msgspec.field(name=keys.RECORD, default="")
    plan: str | None = msgspec.field(name=keys.PLAN, default=None)
    queued: str | None = msgspec.field(name=keys.QUEUED, default=None)
    finished: str | None = msgspec.field(name=keys.FINISHED, default=None)


class Outline(_Shape, frozen=True):
    """The part of a record that shows whether its run is queued."""

    metadata: _Meta
    data: _Data = _Data()


def is_queued(outline: Outline, now: float) -> bool:
    """Whether a run waits to be admitted, and a tender has tried to do so lately."""
    waits = outline.data.queued is not None and outline.data.plan is None
    tried = read_moment(outline.metadata.annotations.tried)
    return waits and not leaves_queue(outline) and (tried is None or now - tried < TRIED_WITHIN)


def leaves_queue(outline: Outline) -> bool:
    """Whether a run was stopped or removed, or is over, so that it keeps no other waiting."""
    about = outline.metadata
    stopped = about.annotations.stop is not None or about.deletion_timestamp is not None
    return stopped or outline.data.finished is not None


def created(outline: Outline) -> float:
    """When a run was recorded."""
    return read_moment(json_object(outline.data.record).get("created")) or 0.0
