"""The ends of a run, as its folder has them. They are made where those of all engines are; importing that
costs time, which a run has when it is over."""

from __future__ import annotations

from typing import Any

from echelon.engines.local.folder import rundir
from echelon.errors import EchelonError

Event = dict[str, Any]  # as agents write it; its fields are in model/event.py


def written(end: object) -> Event:
    """An end as the events of a run are written."""
    import msgspec

    found: Event = msgspec.to_builtins(end)
    return found


def summary(worker: int, how: str) -> str:
    """How a worker was lost, in words."""
    from echelon.model import ends

    return ends.loss_summary(worker, how)


def stopped(reason: str) -> Event:
    """A run that was stopped."""
    from echelon.model import ends

    return written(ends.stopped(reason, at=rundir.now()))


def lost(worker: int, how: str) -> Event:
    """A run that lost a worker, and could not go on."""
    from echelon.model import ends

    return written(ends.worker_lost(worker, how, at=rundir.now()))


def failed(error: EchelonError) -> Event:
    """A run that could not be started, or seen through."""
    from echelon.model import ends

    end = ends.failed(str(error), at=rundir.now(), kind="given-up", exit_code=error.exit_code)
    return written(end)
