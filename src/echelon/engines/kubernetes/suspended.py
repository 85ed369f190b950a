"""Which of a run's Jobs are suspended: they make no pods, and those that they had are deleted. Pure.

Who suspends them differs. The Jobs of a run that is held wait for admission, those in a queue of Kueue's for
quota, and those of several groups for each other; a Job that was stopped while it waited stays suspended, or
is let go in order to end. So there are several questions, and each has a name here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import below
from echelon.engines.kubernetes.render import dialects

if TYPE_CHECKING:
    from echelon.engines.kubernetes.record import Stored


def is_suspended(job: Mapping[str, Any]) -> bool:
    """Whether one Job, or what its run is made of instead, is suspended and may go on."""
    return dialects.of(job).is_suspended(job)


def is_told_to_suspend(job: Mapping[str, Any]) -> bool:
    """Whether any controller's job says that it is to have no pods now, also for good."""
    return bool(below(job, "spec").get("suspend") or below(job, "spec", "runPolicy").get("suspend"))


def any_suspended(jobs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a run lacks workers, since a Job of it is suspended."""
    return any(map(is_suspended, jobs))


def all_suspended(jobs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a run has Jobs, and each is suspended: that it has not begun, or waits again, is certain."""
    found = list(map(is_suspended, jobs))
    return bool(found) and all(found)


def why_suspended(jobs: Iterable[Mapping[str, Any]]) -> str:
    """Who has to let a run go on whose Jobs are suspended."""
    for job in filter(is_suspended, jobs):
        if queue := (job["metadata"].get("labels") or {}).get(names.KUEUE_QUEUE):
            return f"in Kueue's queue {queue}"
        return f"its {job.get('kind') or 'Job'} is suspended, and goes on when that is undone"
    return ""


def begins_anew(stored: Stored, jobs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether workers that are gone come again: a Job of a run without a stop is suspended."""
    return stored.stop is None and any_suspended(jobs)
