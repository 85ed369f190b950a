"""Admission: look at the cluster, find a place, start; or stay in line and say why.

The same function serves the command line for a new run, the local supervisor for a run in line, and whoever
else looks after a queue."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.engines.base import Engine, Taken
from echelon.model.cluster import Cluster
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.run import RunRef
from echelon.placement import NoRoom, place
from echelon.planning import make_plan, make_world


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """The run stays in line; `reason` says what it waits for."""

    reason: str


def find_plan(job: Job, engine: Engine) -> Plan | Queued:
    """What would happen to the job now: its plan, or why it must wait.

    Raises Unplaceable if it never fits.
    """
    world = make_world(job)
    wants_gpus = any(group.resources.gpus for group in world.groups)
    cluster = engine.cluster(gpus=wants_gpus, job=job)
    placement = place(world, cluster)
    if isinstance(placement, NoRoom):
        return Queued(reason=placement.reason)
    ahead = (
        cluster.waiting[: cluster.waiting.index(job.name)] if job.name in cluster.waiting else cluster.waiting
    )
    if wants_gpus and ahead:
        more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
        return Queued(reason=f"waiting in line behind {ahead[0]}{more}")
    return make_plan(job, placement, cluster)


def plan_anywhere(job: Job) -> Plan:
    """The plan of a run that takes whatever place it is given."""
    unknown = Cluster(nodes=(), known=False)
    placement = place(make_world(job), unknown)
    assert not isinstance(placement, NoRoom)
    return make_plan(job, placement, unknown)


def admit(ref: RunRef, engine: Engine, found: Plan | Queued | None = None) -> Plan | Queued:
    """Start the run if it fits now. `found` is what a look a moment ago has shown; without it, look."""
    while True:
        if found is None:
            found = find_plan(engine.read(ref).job, engine)
        if isinstance(found, Queued):
            engine.queue(ref, found.reason)
            return found
        try:
            engine.start(ref, found)
        except Taken:
            found = None  # somebody was faster: look again
        else:
            return found
