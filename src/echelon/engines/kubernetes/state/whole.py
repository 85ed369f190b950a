"""Whether a run of several Jobs is whole: all of them are there and started, or none goes on. Pure.

Those of a run that starts at once are made to wait, and are released together when all are there; that its
record goes with them comes last (`queue/making.py`). What lies between was cut off, or a client is at it. At
the other end, a Job may go on whose workers came too late to be told by the leader that the run is over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from echelon.agent.task import LEFT_FOR_GOOD, RUN_OVER
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import SUBMISSION, Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state.workers import container_end, leader_pods
from echelon.engines.kubernetes.suspended import any_suspended
from echelon.model.event import Event
from echelon.model.pods.pod import JOB

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object

_RAN = ("worker-running", "restarting", "rank-ended")


def is_half_made(stored: Stored, jobs: Sequence[Object]) -> bool:
    """Whether Jobs of a run that has its plan are yet to be made or released, and its record is not tied to
    them. One that a command admits is tied before.
    """
    planned = _planned(stored)
    if stored.owners or len(planned) < 2:
        return False
    there = {job["metadata"]["name"] for job in jobs}
    return any_suspended(jobs) or not there.issuperset(planned)


def is_cut_off(stored: Stored, jobs: Sequence[Object], now: float) -> bool:
    """Whether a client was cut off when it had made some of a run's Jobs, or released some, so that another
    one must do the rest. A run without a Job is taken up by repeating its submission.
    """
    if not jobs or stored.stop is not None or stored.end is not None:
        return False
    return is_half_made(stored, jobs) and now - (stored.admitted or 0.0) > SUBMISSION


def is_being_made(stored: Stored, jobs: Sequence[Object], now: float) -> bool:
    """Whether a client may be making Jobs of the run at this moment."""
    return is_half_made(stored, jobs) and now - (stored.admitted or 0.0) <= SUBMISSION


def other_jobs(stored: Stored, jobs: Sequence[Object]) -> list[Object]:
    """The Jobs of a run that go on, but for the one of its leader."""
    mine = (job for job in jobs if job["metadata"]["name"] != stored.run.ref.name)
    return [job for job in mine if dialects.end_of([job]) is None]


def none_ran(events: Iterable[Event]) -> bool:
    """Whether no rank of a run ever ran, as its leader tells: all start when the last worker has come. Then
    its workers have no results, and some may not have come yet.
    """
    return not any(event.kind in _RAN for event in events)


def left_over(end: Event, stored: Stored, jobs: Sequence[Object], pods: Sequence[Pod]) -> list[Object]:
    """The Jobs that go on though the run is over and its leader has left in order, or was ended by a stop:
    no leader will tell their workers. One that was lost is another matter: its members hold their results.
    """
    if end.outcome == "succeeded":
        return []  # every worker took part, and leaves by itself
    leaders = leader_pods(pods)
    left = container_end(leaders[-1]) if leaders else None
    orderly = left is not None and left.exit_code in (0, RUN_OVER, LEFT_FOR_GOOD)
    return other_jobs(stored, jobs) if orderly or _is_stopped(stored, jobs) else []


def _is_stopped(stored: Stored, jobs: Sequence[Object]) -> bool:
    """Whether the leader's Job was ended from outside, for a stop."""
    first = [job for job in jobs if job["metadata"]["name"] == stored.run.ref.name]
    if stored.stop is None or not first:
        return False
    end = dialects.end_of(first)
    return dialects.of(first[0]).is_withdrawn(first[0]) or (
        end is not None and end.reason == "DeadlineExceeded"
    )


def _planned(stored: Stored) -> tuple[str, ...]:
    """The names of the Jobs of a run that has its plan. Other kinds of objects are one for all groups."""
    plan = stored.run.plan
    if plan is None or stored.dialect != JOB:
        return ()
    return tuple(names.job_names(stored.run.ref.name, plan.world))
