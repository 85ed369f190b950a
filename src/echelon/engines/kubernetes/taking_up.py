"""A submission that was cut off before it started: whether another one is the same, and goes on with it."""

from __future__ import annotations

from echelon.engines.kubernetes import objects, record
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.record import Shipped
from echelon.engines.kubernetes.state import whole
from echelon.model.job import Job


def take_up(api: Api, view: View, job: Job, shipped: Shipped) -> bool:
    """Whether what is there is the same submission, cut off before it started.

    If its code has changed, or it was stopped before it began, it is cleared away and begins again."""
    known, jobs = view.stored, view.jobs
    if jobs and known.stop is None and whole.is_half_made(known, jobs):
        return known.run.job == job and known.shipped == shipped
    # The client that made them may have been cut off after.
    objects.tie_record(api, known, jobs or view.waiting)
    if known.run.job != job or known.started or record.is_queued(known):
        return False
    if known.stop is not None or known.shipped != shipped:
        objects.remove(api, record.identity(known))
    return True
