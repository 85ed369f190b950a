"""Why a job of Kubeflow's does not run, asked of the cluster. It only reads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.diagnose.cluster_events import read_event
from echelon.engines.kubernetes.diagnose.kueue import queue_of
from echelon.engines.kubernetes.diagnose.trouble import Trouble
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.follow.troubles import find_troubles
from echelon.engines.kubernetes.watched.state import Seen, as_jobs, as_worker

_SILENCE = 15.0  # seconds within which a controller has noted that it saw a new job
_DOCTOR = "`echelon doctor` tells whether Kubeflow's runs"


def find_waiting(api: Api, seen: Seen) -> Trouble | None:
    """The most telling trouble of a job that has not ended; None where all is well."""
    jobs = as_jobs(seen)
    if seen.pods or queue_of(jobs[0]):
        pods = [as_worker(number, pod) for number, pod in seen.pods.items()]
        return next(iter(find_troubles(api, jobs, pods, restarts=True)), None)
    if _was_noticed(seen.job):
        return None
    if (refusal := _refusal(api, seen.job)) is not None:
        return Trouble(worker=None, kind="refused", sentence=refusal, hint="")
    made = moment(seen.job["metadata"].get("creationTimestamp")) or 0.0
    if time.time() - made < _SILENCE:
        return None
    return Trouble(
        worker=None, kind="silent", sentence=f"no controller has acted on the job: {_DOCTOR}", hint=_DOCTOR
    )


def _was_noticed(job: Mapping[str, Any]) -> bool:
    """Whether its controller has written anything into it; Trainer's conditions come with the end only."""
    status = job.get("status") or {}
    return bool(status.get("conditions") or status.get("jobsStatus"))


def _refusal(api: Api, job: Mapping[str, Any]) -> str | None:
    """What the controller said of a job that it cannot act on, the last thing, in an event."""
    about = job["metadata"]
    chosen = f"involvedObject.name={about['name']},involvedObject.uid={about.get('uid')},type=Warning"
    said = map(read_event, api.list_shapes("Event", shapes.Event, fields=chosen))
    newest = max(said, key=lambda each: each.last, default=None)
    return newest.message or None if newest is not None else None
