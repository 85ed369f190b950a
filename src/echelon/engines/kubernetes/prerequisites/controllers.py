"""Whether the cluster has what runs jobs of other kinds than Kubernetes' own: their definitions, and a
controller that is at work.

A definition is seen by a read, before anything is made. A controller is not: where and as what it runs is its
installation's choice, and its Deployment and leases are in a namespace that users may not read. It is known
by what it does first of all, which is to give a new job a condition, or a TrainJob the state of its Jobs. A
job that gets none in time is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes.client.api import NotThere
from echelon.engines.kubernetes.client.kinds import KINDS, discovered
from echelon.engines.kubernetes.fields import has_conditions
from echelon.engines.kubernetes.render import dialects
from echelon.errors import EchelonError, Unavailable

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api, Object
    from echelon.model.job import Job

TAKEN_UP = (
    30.0  # seconds that a controller has for its first condition; one that is at work needs less than one
)
_LOOK = 0.2
_ITSELF = "kubeflow.org/training-operator"  # of `managedBy`
_WITHOUT = "leave --as out: echelon's own workers need no controller"


def check_kind(api: Api, job: Job) -> None:
    """Raise InvalidJob for a job that cannot be of the kind that it names, and Unavailable where the cluster
    does not have that kind.
    """
    dialect = dialects.named(job.pod.job_kind)
    dialect.check(job)
    if job.pod.job_kind == "job":
        return
    for kind in dialect.KINDS:
        try:
            api.exists(discovered(kind), job.name)
        except NotThere:
            said = f"--as {job.pod.job_kind}: the cluster has no {kind}s"
            raise Unavailable(said, hint=_WITHOUT) from None


def check_taken_up(api: Api, made: Sequence[Object]) -> None:
    """Raise Unavailable, and delete them, if no controller takes these objects up."""
    for obj in made:
        if not _is_taken_up(api, obj, dialects.of(obj).is_known):
            delete_objects(api, made)
            raise _no_controller(obj)


def check_native(api: Api, job: Object, beside: Sequence[Object] = ()) -> None:
    """The same for a job of Kubeflow's that a user wrote, and for what was created `beside` it. Only the
    first generation and mpi-operator give every job a condition, and one that another controller manages is
    not theirs.
    """
    managed = ((job.get("spec") or {}).get("runPolicy") or {}).get("managedBy", _ITSELF) != _ITSELF
    if managed or not str(job["apiVersion"]).startswith("kubeflow.org/"):
        return
    if not _is_taken_up(api, job, has_conditions):
        delete_objects(api, [job, *beside])
        raise _no_controller(job, hint="`echelon doctor` tells whether Kubeflow's runs; " + _WITHOUT)


def _no_controller(obj: Mapping[str, Any], *, hint: str = _WITHOUT) -> Unavailable:
    kind, name = obj["kind"], obj["metadata"]["name"]
    return Unavailable(
        f"the cluster knows {kind}s, and no controller runs them: {name!r} was not taken up "
        f"within {TAKEN_UP:g} s, and was deleted",
        hint=hint,
    )


def _is_taken_up(api: Api, obj: Object, is_known: Callable[[Object], bool]) -> bool:
    deadline = time.monotonic() + TAKEN_UP
    seen: Object | None = obj
    while seen is not None and not is_known(seen):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK)
        seen = api.find(_resource(obj), obj["metadata"]["name"], namespace=obj["metadata"].get("namespace"))
    return True


def delete_objects(api: Api, made: Sequence[Object]) -> None:
    """Delete objects that were made for a job that cannot run."""
    for each in made:
        about = each["metadata"]
        with suppress(EchelonError):
            api.delete(
                _resource(each), about["name"], namespace=about.get("namespace"), uid=about.get("uid") or ""
            )


def _resource(obj: Mapping[str, Any]) -> str:
    """What the client knows the kind of an object by."""
    kind, version = str(obj["kind"]), str(obj["apiVersion"])
    if kind in KINDS and KINDS[kind].api_version == version:
        return kind
    group, _, number = version.rpartition("/")
    return f"{kind.lower()}s.{number}.{group}"
