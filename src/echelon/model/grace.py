"""How long ranks may take to end, and what their pods are given for it. Pure.

The kubelet kills a pod `terminationGracePeriodSeconds` after SIGTERM. The agent needs some of that for
itself: to read the ranks' last lines, and to hand over results; and to give checkpoints to the run's keeper,
which may be large. A template or a patch of the user's may give
the pods more than `--grace` asks for: then the ranks get it, too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from echelon.agent.task import GIVING
from echelon.model.job import Job, role_named
from echelon.model.pods.patch import apply_patch

FOR_AGENT = 20  # seconds of a pod's time that are not the ranks'
FIELD = "terminationGracePeriodSeconds"


def termination_of(job: Job, role: str) -> int:
    """The seconds from SIGTERM to SIGKILL of a role's pods, before the user's patch: the longer of what the
    job and its template say.
    """
    found = role_named(job, role)
    template = (found.template if found is not None else None) or job.pod.template
    return max(math.ceil(job.grace) + _for_agent(job), _seconds(template) or 0)


def grace_in_pods(job: Job, roles: tuple[str, ...] = ("worker",)) -> float:
    """The seconds that ranks of a run in pods have: what was asked for, or what its pods allow beyond."""
    allowed = []
    for role in roles:
        before = termination_of(job, role)
        after = _seconds(apply_patch(job.pod.patch, {"spec": {FIELD: before}}))
        allowed.append(before if after is None else after)
    beyond = min(allowed, default=0) - _for_agent(job)
    return float(beyond) if beyond > math.ceil(job.grace) else job.grace


def _for_agent(job: Job) -> int:
    return FOR_AGENT + (int(GIVING) if job.pod.checkpoints is not None and job.pod.output is None else 0)


def _seconds(pod: Mapping[str, Any]) -> int | None:
    spec = pod.get("spec")
    found = spec.get(FIELD) if isinstance(spec, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None
