"""Admission: look at the cluster, find a place, start; or stay queued, with the reason.

One function admits a new run and retries a queued one, so that both follow the same rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Literal

from echelon.engines.base import Engine, NotAdmitted, ShapeKept, Taken
from echelon.errors import InvalidJob, NoRoomNow, Unplaceable
from echelon.model import ends
from echelon.model.engine.cluster import Cluster
from echelon.model.event import Event
from echelon.model.job import Job, asks_for_gpus
from echelon.model.plan import Plan
from echelon.model.pods.pod import JOB
from echelon.model.run import Record, RunRef
from echelon.model.world import World
from echelon.placement import NoRoom, place
from echelon.planning import candidates, fit, make_plan
from echelon.values import frozen

_TRIES = 10  # looks for a place, each of which another run takes before the start


@frozen
class Queued:
    """The run stays queued; `reason` is what it waits for. `full` if no node has room for it now, else it is
    behind others.
    """

    reason: str
    full: bool = field(default=False, compare=False)


@frozen
class Way:
    """Which process admits a run, and whether its workers' objects are made before, and wait (`held`)."""

    by: Literal["engine", "command", "scheduler"]
    held: bool = False


def way_of(*, keeps_queue: bool, gpus: bool, stays: bool, placed: bool, waits: bool = False) -> Way:
    """How a run is admitted. Pure.

    Where the engine keeps a queue, by it. Else by the command that stays with the run: the objects of one
    that has to wait, and of one with GPUs, wait, and all start together. Where the user may not see the nodes
    (not `placed`) or the command leaves, only the cluster's scheduler makes a run wait. What needs no GPU and
    fits is not held: it would cost time and avoid nothing."""
    if keeps_queue:
        return Way(by="engine")
    if stays:
        return Way(by="command", held=waits or (gpus and placed))
    return Way(by="scheduler")


def find_way(job: Job, engine: Engine, found: Plan | Queued, *, stays: bool) -> Way:
    """How this run is admitted, after a look that has `found` a plan for it or a reason to wait."""
    if _is_admitted_elsewhere(job, engine):
        return _way_of_kueue(job, found, stays=stays)
    return way_of(
        keeps_queue=engine.traits.keeps_queue,
        gpus=asks_for_gpus(job),
        stays=stays,
        placed=isinstance(found, Plan) and any(seat.node for seat in found.placement.seats),
        waits=isinstance(found, Queued),
    )


def _way_of_kueue(job: Job, found: Plan | Queued, *, stays: bool) -> Way:
    """Kueue starts a single Job by itself. Several are started by the command, once Kueue has admitted all of
    them; the object of another controller is one.
    """
    several = isinstance(found, Plan) and len(found.world.groups) > 1 and job.pod.job_kind == JOB
    if not several or job.pod.queue is None:
        return Way(by="scheduler")
    if not stays:
        raise InvalidJob(
            "queue",
            job.pod.queue,
            "admits a detached run only if it is a single Job: several are started by the command that stays",
            hint="leave -d out; or leave --role out, and with --total-gpus use equal shares",
        )
    return Way(by="command", held=True)


def shape_to_hold(job: Job, engine: Engine, found: Plan | Queued, way: Way) -> Plan | None:
    """The plan with which the objects of a run that is held are made; None for any other."""
    if not way.held:
        return None
    if isinstance(found, Plan):
        return found
    return plan_anywhere(job, None if job.shape is None else engine.cluster(job=job))


def find_plan(
    job: Job,
    engine: Engine,
    world: World | None = None,
    *,
    tell: Callable[[str], object] = lambda _note: None,
) -> Plan | Queued:
    """What would happen to the job now: the plan of the first candidate that fits, or why it must wait. With
    `world`, that is the only candidate.

    Raises Unplaceable if no candidate ever fits. Where nodes are added for workers that find no room, neither
    is known: the plan has no place then, and what is not known is told. So is why a run gets fewer GPUs than
    the most that it asks for."""
    cluster = engine.cluster(gpus=asks_for_gpus(job), job=job)
    if _is_admitted_elsewhere(job, engine):
        return _anywhere(job, candidates(job, cluster)[0].world, cluster.gpu_resource)
    try:
        found = _look(job, cluster, world)
    except Unplaceable as error:
        if not _scales(job, engine):
            raise
        plan = _plan_for_new_nodes(job, cluster, world)
        if plan is None:
            raise
        tell(f"{error.message}. Whether the cluster can add such nodes is not known: its pods wait for them")
        return plan
    if isinstance(found, Queued) and found.full and _scales(job, engine):
        plan = _plan_for_new_nodes(job, cluster, world)
        if plan is not None:
            tell(f"{found.reason}. Its pods are made now and wait, so that the cluster adds nodes for them")
            return plan
    if isinstance(found, Plan) and job.shape is not None and job.shape.least < job.shape.most:
        from echelon.placement.drawing import why_not_more  # most runs ask for one number

        if why := why_not_more(job, found, cluster):
            tell(why)
    return found


def _is_admitted_elsewhere(job: Job, engine: Engine) -> bool:
    """Whether Kueue admits the run, or a controller of Kubeflow's makes its pods at once; on this machine
    there is none, and the settings have no effect.
    """
    elsewhere = job.pod.queue is not None or job.pod.job_kind != JOB
    return elsewhere and not engine.traits.keeps_queue


def _scales(job: Job, engine: Engine) -> bool:
    return not engine.traits.keeps_queue and (job.pod.scale_up or engine.adds_nodes())


def _plan_for_new_nodes(job: Job, cluster: Cluster, world: World | None) -> Plan | None:
    """A plan without places; None of a job whose shape only nodes could tell."""
    try:
        wanted = candidates(job, cluster)[0].world if world is None else world
        return _anywhere(job, wanted, cluster.gpu_resource)
    except Unplaceable:
        return None


def _look(job: Job, cluster: Cluster, world: World | None) -> Plan | Queued:
    wants_gpus = asks_for_gpus(job)
    try:
        found = fit(job, cluster, world=world)
    except Unplaceable as error:
        raise _with_what_fits(job, cluster, error) from None
    if isinstance(found, NoRoom):
        other = _fits_instead(job, cluster) if wants_gpus and not _ahead(job, cluster) else ""
        reason = f"{found.reason}; {other} fits now" if other else found.reason
        return Queued(reason=reason, full=True)
    if wants_gpus and (ahead := _ahead(job, cluster)):
        more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
        return Queued(reason=f"queued behind {ahead[0]}{more}")
    return found


def _with_what_fits(job: Job, cluster: Cluster, error: Unplaceable) -> Unplaceable:
    """The same refusal; of a run that gives its shape, with another that would fit if nothing else ran."""
    if not asks_for_gpus(job) or (job.shape is not None and not (job.shape.gpus or job.shape.workers)):
        return error
    from echelon.placement.instead import emptied

    other = _fits_instead(job, emptied(cluster))
    return Unplaceable(error.message, hint=f"{other} would fit; {error.hint}") if other else error


def _fits_instead(job: Job, cluster: Cluster) -> str:
    if job.least is not None:  # it has tried other sizes
        return ""
    from echelon.placement.instead import fits_instead  # of most runs it is not asked

    return fits_instead(job, cluster)


def _ahead(job: Job, cluster: Cluster) -> Sequence[str]:
    """The runs that wait for GPUs and came before this one."""
    waiting = cluster.waiting
    return waiting[: waiting.index(job.name)] if job.name in waiting else waiting


def plan_anywhere(job: Job, cluster: Cluster | None = None) -> Plan:
    """The plan of a run that takes whatever place it is given; one whose shape is open needs a cluster."""
    unknown = Cluster(nodes=(), known=False)
    world = candidates(job, unknown if cluster is None else cluster)[0].world
    return _anywhere(job, world, unknown.gpu_resource)


def _anywhere(job: Job, world: World, gpu_resource: str) -> Plan:
    unknown = Cluster(nodes=(), known=False, gpu_resource=gpu_resource)
    placement = place(world, unknown)
    assert not isinstance(placement, NoRoom)
    return make_plan(job, world, placement, unknown)


def overdue(record: Record, now: float) -> Event | None:
    """The end of a run that has been queued for too long; None of one that may go on waiting."""
    limit = record.job.queue_timeout
    return ends.not_admitted(limit, at=round(now, 3)) if now > record.created + limit else None


def no_room(found: Queued) -> NoRoomNow:
    """The refusal of a run that would have to wait and may not."""
    return NoRoomNow(found.reason, hint="leave --no-wait out to wait in the queue")


def begin(
    ref: RunRef, engine: Engine, found: Plan | Queued, way: Way, *, no_wait: bool = False
) -> Plan | Queued:
    """Admit a run that was recorded now. One that may not wait needs no other try."""
    return admit(ref, engine, found, anywhere=way.by == "scheduler" and not no_wait)


def admit(
    ref: RunRef, engine: Engine, found: Plan | Queued | None = None, *, anywhere: bool = False
) -> Plan | Queued:
    """Start the run if it fits now. `found` is what a look a moment ago has shown; without it, look.

    With `anywhere`, a run that does not fit now starts all the same, without a place of its own: no process
    would retry it. That another run took its place at the last moment makes no difference."""
    taken_by, world = "", None
    for _ in range(_TRIES):
        if found is None:
            found = find_plan(engine.read(ref).job, engine, world)
        if isinstance(found, Queued):
            break
        try:
            engine.start(ref, found)
        except Taken as taken:
            found, taken_by = None, str(taken)  # another run was faster: look again
        except ShapeKept as kept:
            found, world = None, kept.world  # as on a cluster that freezes the size of what waits
        except NotAdmitted as refusal:
            found = Queued(reason=str(refusal))
        else:
            return found
    if anywhere:
        job = engine.read(ref).job
        plan = plan_anywhere(job, None if job.shape is None else engine.cluster(job=job))
        engine.start(ref, plan)
        return plan
    waits = found if isinstance(found, Queued) else Queued(reason=f"{taken_by} takes what it would get")
    engine.queue(ref, waits.reason)
    return waits
