"""Volume claims as users see them: which there are, who uses them, made and removed. For `echelon volume`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from shlex import quote
from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, Listing, NotThere, Object
from echelon.engines.kubernetes.diagnose.claims import claims_of
from echelon.engines.kubernetes.fields import annotation, moment
from echelon.engines.kubernetes.quantities import amount_of
from echelon.engines.kubernetes.record import dialect_of
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.volumes import new_claim
from echelon.engines.kubernetes.storage import shared_classes
from echelon.errors import Denied, InvalidJob
from echelon.model.engine.volume import Volume, check_unused

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_OVER = ("Succeeded", "Failed")


def list_volumes(api: Api) -> list[Volume]:
    """Every claim of the namespace, by name."""
    claims = api.list("PersistentVolumeClaim").items
    if not claims:
        return []
    # Without the right to list its users, a volume must not look free.
    pods = api.list("Pod").items
    records = api.list("ConfigMap", selector=f"{names.COMPONENT}={names.RECORD}").items
    kinds = dialects.kinds_of(map(dialect_of, records))
    jobs = []
    for kind in kinds:
        with suppress(NotThere):  # what a record names, and the cluster does not have
            jobs += api.list(kind).items
    policies = _policies(api)
    return sorted((to_volume(claim, pods, jobs, policies) for claim in claims), key=lambda each: each.name)


def list_shared_classes(api: Api) -> list[str]:
    """The storage classes that are known to serve pods of several nodes at once, the default first."""
    classes = _if_allowed(api, "StorageClass")
    default = [each for each in classes if _is_default(each)]
    others = [each for each in classes if not _is_default(each)]
    return shared_classes([*default, *others], _if_allowed(api, "PersistentVolumeClaim"))


def read_volume(api: Api, name: str) -> Volume:
    """One claim; InvalidJob, which lists those there are, if there is none of that name."""
    found = {volume.name: volume for volume in list_volumes(api)}
    if name not in found:
        import difflib

        near = difflib.get_close_matches(name, found, n=1)
        there = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(found) or 'none'}"
        raise InvalidJob(
            "volume",
            name,
            f"is not in namespace {api.namespace}",
            hint=f"{there}; `echelon volume create {quote(name)} --size 10Gi` makes it",
        )
    return found[name]


def create_volume(
    api: Api,
    name: str,
    *,
    size: int,
    mode: str = "ReadWriteOnce",
    storage_class: str | None = None,
    marks: Mapping[str, str] | None = None,
    owner: str,
) -> Volume:
    """Make a claim. Many classes give it its storage only when a pod first uses it."""
    _check_class(api, storage_class)
    own = {names.MANAGED_BY: "echelon", names.OWNER: names.owner_slug(owner)}
    about = {"name": name, "labels": {**own, **(marks or {})}, "annotations": {names.OWNER: owner}}
    try:
        made = api.create(new_claim(about, mode=mode, size=size, storage_class=storage_class))
    except AlreadyThere as error:
        raise InvalidJob("volume", name, "exists", hint="`echelon volume ls` shows it") from error
    return to_volume(made, (), (), _policies(api))


def remove_volume(api: Api, volume: Volume) -> None:
    """Remove a claim that no pod and no run uses: the one that was looked at."""
    check_unused(volume)
    api.delete("PersistentVolumeClaim", volume.name, uid=volume.uid)


def to_volume(
    claim: Object,
    pods: Sequence[Object],
    jobs: Sequence[Object],
    policies: Mapping[str, str],
) -> Volume:
    """A claim with all that is known of it. Pure."""
    name, spec, status = claim["metadata"]["name"], claim.get("spec") or {}, claim.get("status") or {}
    mine = [pod for pod in pods if name in claims_of(pod.get("spec") or {}) and _lives(pod)]
    busy = [job for job in jobs if name in claims_of(_template_of(job)) and not dialects.end_of([job])]
    runs = {_run_of(each) for each in (*mine, *busy)}
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    size = (status.get("capacity") or {}).get("storage") or asked
    storage_class = spec.get("storageClassName")
    return Volume(
        name=name,
        status="Terminating"
        if claim["metadata"].get("deletionTimestamp")
        else status.get("phase", "Pending"),
        size=-(-amount_of(size) // 1000),
        modes=tuple(status.get("accessModes") or spec.get("accessModes") or ()),
        storage_class=storage_class,
        reclaim=policies.get(f"volume {spec.get('volumeName')}") or policies.get(f"class {storage_class}"),
        created=moment(claim["metadata"].get("creationTimestamp")) or 0.0,
        pods=tuple(sorted(pod["metadata"]["name"] for pod in mine)),
        runs=tuple(sorted(runs - {""})),
        nodes=tuple(sorted({(pod.get("spec") or {}).get("nodeName") or "" for pod in mine} - {""})),
        labels=claim["metadata"].get("labels") or {},
        uid=str(claim["metadata"].get("uid") or ""),
    )


def _template_of(job: Object) -> Mapping[str, Any]:
    """The spec of the pods that a Job makes."""
    found: Mapping[str, Any] = dialects.of(job).template_of(job).get("spec") or {}
    return found


def _lives(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in _OVER


def _run_of(obj: Object) -> str:
    return str((obj["metadata"].get("labels") or {}).get(names.RUN, ""))


def _policies(api: Api) -> dict[str, str]:
    """What becomes of the data of a volume, or of a class's volumes, when its claim goes. Both belong
    to the cluster, and not every user may see them.
    """
    found = {
        f"volume {each['metadata']['name']}": (each.get("spec") or {}).get(
            "persistentVolumeReclaimPolicy", "Retain"
        )
        for each in _if_allowed(api, "PersistentVolume")
    }
    for each in _if_allowed(api, "StorageClass"):
        found[f"class {each['metadata']['name']}"] = each.get("reclaimPolicy") or "Delete"
    return found


def _check_class(api: Api, wanted: str | None) -> None:
    """A claim of a class that is not there would wait for ever."""
    try:
        classes: Listing = api.list("StorageClass")
    except Denied:
        return
    there = [each["metadata"]["name"] for each in classes.items]
    if wanted is not None and wanted not in there:
        raise InvalidJob(
            "class", wanted, "is not a storage class here", hint=f"there are {', '.join(there) or 'none'}"
        )
    defaults = [each for each in classes.items if _is_default(each)]
    if wanted is None and not defaults:
        raise InvalidJob(
            "class",
            None,
            "must be named: the cluster has no default",
            hint=f"--class with one of {', '.join(there)}" if there else "ask for a storage class first",
        )


def _is_default(storage_class: Object) -> bool:
    return annotation(storage_class, DEFAULT_CLASS) == "true"


def _if_allowed(api: Api, kind: str) -> list[Object]:
    try:
        return api.list(kind).items
    except Denied:
        return []
