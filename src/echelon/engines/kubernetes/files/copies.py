"""The copies of a namespace that go on, for `ps`: each is a Job of `copy_pod`. It only reads."""

from __future__ import annotations

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.fields import moment, one_line
from echelon.engines.kubernetes.render import dialects
from echelon.model.copy import OpenCopy


def list_copies(api: Api) -> list[OpenCopy]:
    """Every copy that goes on, the newest first."""
    selector = f"{names.MANAGED_BY}=echelon,{names.COMPONENT}={names.TRANSFER}"
    found = [to_copy(job) for job in api.list("Job", selector=selector).items if not dialects.end_of([job])]
    return sorted((each for each in found if each is not None), key=lambda each: -each.created)


def to_copy(job: Object) -> OpenCopy | None:
    """The copy that a Job is for; None for one that mounts no volume, and is none of ours. Pure."""
    about, spec = job["metadata"], job["spec"]["template"]["spec"]
    for volume in spec.get("volumes") or []:
        claim = volume.get("persistentVolumeClaim")
        if claim:
            return OpenCopy(
                name=about["name"],
                volume=str(claim.get("claimName")),
                writes=not claim.get("readOnly"),
                owner=one_line((about.get("annotations") or {}).get(names.OWNER)),
                created=moment(about.get("creationTimestamp")) or 0.0,
                state="running" if (job.get("status") or {}).get("ready") else "starting",
            )
    return None
