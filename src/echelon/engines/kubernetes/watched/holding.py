"""A job that Kueue manages stays suspended only if Kueue is told so: it starts what it has admitted again."""

from __future__ import annotations

from shlex import quote

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.diagnose.kueue import queue_of, workloads_of
from echelon.errors import Denied


def hold_back(api: Api, job: Object) -> None:
    """Deactivate what Kueue has of a job that is in one of its queues; raises Denied without the right to."""
    if not queue_of(job):
        return
    try:
        for each in workloads_of(job, api.list_shapes(names.KUEUE_WORKLOADS, shapes.Workload)):
            about = each.metadata
            api.patch(names.KUEUE_WORKLOADS, about.name, {"spec": {"active": False}}, uid=about.uid)
    except NotThere:
        return  # there is no Kueue
    except Denied as error:
        kind, name = str(job.get("kind", "job")).lower(), job["metadata"]["name"]
        raise Denied(
            f"Kueue would start it again, and you may not change its Workload: {error.message}",
            hint=f"`kubectl delete {kind} {quote(name)}` ends it; a role that may patch workloads lets you "
            "stop it",
        ) from None
