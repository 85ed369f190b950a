"""Admission: look at the cluster, find a place, start; or stay queued, with the reason.

One function admits a new run and retries a queued one, so that both follow the same rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echelon.engines.base import Engine, Taken
from echelon.errors import Unplaceable
from echelon.model.cluster import Cluster
from echelon.model.job import Job, asks_for_gpus
from echelon.model.plan import Plan
from echelon.model.run import RunRef
from echelon.placement import NoRoom, place
from echelon.planning import candidates, make_plan

_TRIES = 10  # looks for a place, each of which another run takes before the start


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """The run stays queued; `reason` is what it waits for."""

    reason: str


def find_plan(job: Job, engine: Engine) -> Plan | Queued:
    """What would happen to the job now: the plan of the first candidate that fits, or why it must wait.

    Raises Unplaceable if no candidate ever fits.
    """
    wants_gpus = asks_for_gpus(job)
    cluster = engine.cluster(gpus=wants_gpus, job=job)
    waits: NoRoom | None = None
    refusal: Unplaceable | None = None
    for world in candidates(job, cluster):
        try:
            placement = place(world, cluster)
        except Unplaceable as error:
            refusal = refusal or error
            continue
        if isinstance(placement, NoRoom):
            waits = waits or placement
        elif wants_gpus and (ahead := _ahead(job, cluster)):
            more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
            return Queued(reason=f"queued behind {ahead[0]}{more}")
        else:
            return make_plan(job, world, placement, cluster)
    if waits is not None:
        return Queued(reason=waits.reason)
    assert refusal is not None
    raise refusal


def _ahead(job: Job, cluster: Cluster) -> Sequence[str]:
    """The runs that wait for GPUs and came before this one."""
    waiting = cluster.waiting
    return waiting[: waiting.index(job.name)] if job.name in waiting else waiting


def plan_anywhere(job: Job) -> Plan:
    """The plan of a run that takes whatever place it is given."""
    unknown = Cluster(nodes=(), known=False)
    world = candidates(job, unknown)[0]
    placement = place(world, unknown)
    assert not isinstance(placement, NoRoom)
    return make_plan(job, world, placement, unknown)


def admit(
    ref: RunRef, engine: Engine, found: Plan | Queued | None = None, *, anywhere: bool = False
) -> Plan | Queued:
    """Start the run if it fits now. `found` is what a look a moment ago has shown; without it, look.

    With `anywhere`, a run that does not fit now starts all the same, without a place of its own: no process
    would retry it. That another run took its place at the last moment makes no difference."""
    taken_by = ""
    for _ in range(_TRIES):
        if found is None:
            found = find_plan(engine.read(ref).job, engine)
        if isinstance(found, Queued):
            break
        try:
            engine.start(ref, found)
        except Taken as taken:
            found, taken_by = None, str(taken)  # another run was faster: look again
        else:
            return found
    if anywhere:
        plan = plan_anywhere(engine.read(ref).job)
        engine.start(ref, plan)
        return plan
    waits = found if isinstance(found, Queued) else Queued(reason=f"{taken_by} takes what it would get")
    engine.queue(ref, waits.reason)
    return waits
