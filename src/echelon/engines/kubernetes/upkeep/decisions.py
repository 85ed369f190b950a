"""What upkeep a run needs: from what is there to what is to be done. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.agent.stopping import GIVING_AT_END
from echelon.engines.kubernetes import names, record
from echelon.engines.kubernetes.client.api import Object
from echelon.engines.kubernetes.diagnose import Trouble, gives_up
from echelon.engines.kubernetes.diagnose.kueue import waits_in
from echelon.engines.kubernetes.follow.evidence import evidence
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.ledger import first_of
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stop, Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import whole, workers
from echelon.engines.kubernetes.state.standing import Standing, standing
from echelon.engines.kubernetes.suspended import all_suspended, any_suspended, is_suspended
from echelon.engines.kubernetes.upkeep.actions import (
    Action,
    CompleteStart,
    DropPayload,
    EndJobs,
    EndLeftOver,
    FreePod,
    GiveUp,
    KeepEnd,
    LookAfter,
    RollBack,
    SeeWhole,
    TieRecord,
    Withdraw,
)
from echelon.model import ends
from echelon.model.grace import grace_in_pods
from echelon.model.job import Job
from echelon.values import frozen

_STOP_PATIENCE = 25.0  # seconds that the agents have for an orderly end, once the time of a stop is over
BINDING = 30.0  # seconds that an admitted gang has to get all of its nodes: the scheduler takes one
NOT_OURS = 15.0  # more of them, before a process that is not the run's tender undoes its admission
_FORSAKEN = 3600.0  # seconds without a try, after which a queued run of another process is looked at


@frozen
class RunView:
    """What upkeep is decided on: the run's objects, how it stands, what keeps it from running, and the Jobs
    of all runs of its namespace, where they were looked at.
    """

    objects: View
    standing: Standing | None = None  # where more is known of it than its objects show
    troubles: Sequence[Trouble] = ()
    around: Sequence[Object] = ()


def decide(view: RunView, now: float) -> list[Action]:
    """What the run needs done to it now."""
    stored, jobs, pods = view.objects.stored, view.objects.jobs, view.objects.pods
    late = late_runs(view.around, now)
    found: list[Action] = [LookAfter(run=run) for run in late if run != stored.run.ref.name]
    if stored.deleted is not None:
        return found
    if whole.is_cut_off(stored, jobs, now):
        found.append(CompleteStart())
    elif _is_untied(view.objects):
        found.append(TieRecord())
    if stored.stop is not None and view.objects.waiting:
        found.append(Withdraw(stop=stored.stop))  # the client that stopped it was killed before it did so
    end = (view.standing or standing(evidence(view.objects), now)).end
    if end is None:
        stuck = (pod.metadata for pod in pods if workers.is_stuck(pod, now))
        found += [FreePod(pod=about.name, uid=about.uid) for about in stuck]
        hopeless = gives_up(view.troubles, now)
        if stored.stop is None and hopeless is not None:
            found.append(GiveUp(reason=hopeless.sentence))
        elif stored.stop is None:
            found += decide_admission(view, now)
        elif _is_overdue(stored.stop, stored.run.job, jobs, pods, now):
            found.append(EndJobs())
    elif end != stored.end and (jobs or stored.shape is not None):
        found.append(KeepEnd(end=end))
    elif stored.end is not None and _have_ended(jobs):
        found.append(DropPayload())
    if end is not None and whole.left_over(end, stored, jobs, pods):
        found.append(EndLeftOver(end=end))
    return found


def decide_admission(view: RunView, now: float) -> list[Action]:
    """What a run that goes on, and is not stopped, needs of admission: an admitted gang gets all of its nodes
    in time or waits again, and none waits for ever. Needs no right but to patch Jobs.
    """
    stored, jobs, pods = view.objects.stored, view.objects.jobs, view.objects.pods
    if not jobs:
        end = _end_of_waiting(stored, now)
        return [] if end is None else [Withdraw(stop=end)]
    plan = stored.run.plan
    if stored.whole or stored.admitted is None or plan is None:
        return []
    if all_suspended(jobs):
        return []  # from outside: Kueue or a user will release it
    if not any(seat.node for seat in plan.placement.seats):
        return []  # it was started without a place, for an autoscaler to add nodes
    if _have_nodes(jobs, pods) or any(map(workers.was_replaced, pods)) or any(map(_lost_any, jobs)):
        return [SeeWhole()]
    if now - stored.admitted < BINDING:
        return []
    return [RollBack(reason=_why_not_whole(jobs, pods, view.troubles))]


def _end_of_waiting(stored: Stored, now: float) -> Stop | None:
    """The end of a queued run that may not wait any more, or, once it was rolled back, not at all."""
    at, job = round(now, 3), stored.run.job
    if not stored.queued:
        return None
    if job.no_wait and any(each.admitted is not None for each in stored.queued):
        why = ends.not_waiting(stored.queued[-1].reason, at=at)
    elif now >= stored.run.created + job.queue_timeout:
        why = ends.not_admitted(job.queue_timeout, at=at)
    else:
        return None
    return Stop(at=at, reason=why.reason or "", outcome="timed-out")


def _have_nodes(jobs: Sequence[Object], pods: Sequence[Pod]) -> bool:
    """Whether every worker has a pod that is on a node, or was."""
    if any_suspended(jobs):
        return False
    placed = [mine for mine in workers.pods_by_worker(pods).values() if any(map(_has_node, mine))]
    return len(placed) == dialects.wanted(jobs)


def _has_node(pod: Pod) -> bool:
    return bool(pod.spec.node_name)


def _lost_any(job: Object) -> bool:
    status = job.get("status") or {}
    return bool(status.get("failed") or status.get("succeeded") or status.get("failedIndexes"))


def _why_not_whole(jobs: Sequence[Object], pods: Sequence[Pod], troubles: Sequence[Trouble]) -> str:
    total = dialects.wanted(jobs)
    placed = sum(any(map(_has_node, mine)) for mine in workers.pods_by_worker(pods).values())
    why = f": {troubles[0].sentence}" if troubles else ""
    return f"{placed} of {total} workers found a node in {BINDING:g} s, so all of them wait again{why}"


def _is_untied(view: View) -> bool:
    """Whether the record would stay when the run's Jobs go; it shall stay when they wait for Kueue and a stop
    deletes them.
    """
    if view.stored.stop is not None and waits_in(view.jobs):
        return False
    if view.stored.stop is None and whole.is_half_made(view.stored, view.jobs):
        return False
    first = first_of([*view.jobs, *view.waiting], view.stored.run.ref.name)
    return first is not None and first["metadata"]["uid"] not in view.stored.owners


def _have_ended(jobs: Sequence[Object]) -> bool:
    """Whether every Job is complete or has failed: none makes another pod, and no pod runs any more."""
    ends = [dialects.end_of([job]) for job in jobs]
    return bool(ends) and all(end is not None and end.final for end in ends)


def _is_overdue(stop: Stop, job: Job, jobs: Sequence[Object], pods: Sequence[Pod], now: float) -> bool:
    """Whether nothing carries a stop out: the client that asked for it was killed, or the leader is stuck."""
    if not jobs or dialects.end_of(jobs) is not None:
        return False
    leads = any(map(workers.is_running, workers.leader_pods(pods)))
    # From SIGINT to SIGKILL ranks have their grace twice.
    patience = _STOP_PATIENCE + 2 * (stop.grace or grace_in_pods(job))
    if job.pod.checkpoints is not None and job.pod.keeper is not None and not stop.now:
        patience += GIVING_AT_END
    return stop.outcome == "failed" or now - stop.at > (patience if leads else record.SUBMISSION)


def late_runs(jobs: Sequence[Object], now: float) -> list[str]:
    """The runs that are admitted, and that no process has seen whole in time; or that wait, and have not been
    tried for so long that they may have expired.
    """
    found = []
    for job in jobs:
        notes, name = job["metadata"].get("annotations") or {}, job["metadata"]["name"]
        if names.PLAN not in notes or name != (job["metadata"].get("labels") or {}).get(names.RUN):
            continue
        if dialects.of(job).is_withdrawn(job):
            continue
        if is_suspended(job):
            last = record.read_moment(notes.get(names.TRIED))
            if last is not None and now - last > _FORSAKEN:
                found.append(name)
        elif names.WHOLE not in notes:
            admitted = record.read_moment(notes.get(names.ADMITTED))
            if admitted is not None and now - admitted > BINDING + NOT_OURS:
                found.append(name)
    return found
