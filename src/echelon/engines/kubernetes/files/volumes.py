"""Volume claims as users see them: which there are, who uses them, made and removed. For `echelon volume`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from shlex import quote
from typing import TypeVar

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, NotThere, Object
from echelon.engines.kubernetes.client.border import Damaged, shaped
from echelon.engines.kubernetes.diagnose.claims import claims_of
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.ownership.belonging import run_of
from echelon.engines.kubernetes.pods import Pod, Spec
from echelon.engines.kubernetes.quantities import amount_of
from echelon.engines.kubernetes.record import dialect_of
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.volumes import new_claim
from echelon.engines.kubernetes.shapes import Claim, StorageClass
from echelon.engines.kubernetes.storage import is_default, shared_classes
from echelon.errors import Denied, InvalidJob
from echelon.model.engine.volume import Volume, check_unused

T = TypeVar("T")
_OVER = ("Succeeded", "Failed")


def list_volumes(api: Api) -> list[Volume]:
    """Every claim of the namespace, by name."""
    claims = api.list_shapes("PersistentVolumeClaim", Claim)
    if not claims:
        return []
    # Without the right to list its users, a volume must not look free.
    pods = api.list_shapes("Pod", Pod)
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
    classes = _if_allowed(api, "StorageClass", StorageClass)
    default_first = sorted(classes, key=lambda each: not is_default(each))
    return shared_classes(default_first, _if_allowed(api, "PersistentVolumeClaim", Claim))


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
    return to_volume(shaped(made, Claim), (), (), _policies(api))


def remove_volume(api: Api, volume: Volume) -> None:
    """Remove a claim that no pod and no run uses: the one that was looked at."""
    check_unused(volume)
    api.delete("PersistentVolumeClaim", volume.name, uid=volume.uid)


def to_volume(
    claim: Claim,
    pods: Sequence[Pod],
    jobs: Sequence[Object],
    policies: Mapping[str, str],
) -> Volume:
    """A claim with all that is known of it. Pure."""
    about, spec, status = claim.metadata, claim.spec, claim.status
    name, storage_class = about.name, spec.storage_class_name
    mine = [pod for pod in pods if name in claims_of(pod.spec) and pod.status.phase not in _OVER]
    busy = [job for job in jobs if name in claims_of(_template_of(job)) and not dialects.end_of([job])]
    runs = {run_of(job) or "" for job in busy} | {pod.metadata.labels.get(names.RUN, "") for pod in mine}
    size = status.capacity.get("storage") or (spec.resources.requests or {}).get("storage")
    return Volume(
        name=name,
        status="Terminating" if about.deletion_timestamp else status.phase or "Pending",
        size=-(-amount_of(size) // 1000),
        modes=status.access_modes or spec.access_modes,
        storage_class=storage_class,
        reclaim=policies.get(f"volume {spec.volume_name}") or policies.get(f"class {storage_class}"),
        created=moment(about.creation_timestamp) or 0.0,
        pods=tuple(sorted(pod.metadata.name for pod in mine)),
        runs=tuple(sorted(runs - {""})),
        nodes=tuple(sorted({pod.spec.node_name for pod in mine} - {""})),
        labels=about.labels,
        uid=about.uid,
    )


def _template_of(job: Object) -> Spec:
    """The spec of the pods that a Job makes; an empty one if it is damaged."""
    with suppress(Damaged):
        return shaped(dialects.of(job).template_of(job).get("spec") or {}, Spec)
    return Spec()


def _policies(api: Api) -> dict[str, str]:
    """What becomes of the data of a volume, or of a class's volumes, when its claim goes. Both belong
    to the cluster, and not every user may see them.
    """
    volumes = _if_allowed(api, "PersistentVolume", shapes.Volume)
    classes = _if_allowed(api, "StorageClass", StorageClass)
    found = {f"volume {each.metadata.name}": each.spec.persistent_volume_reclaim_policy for each in volumes}
    return found | {f"class {each.metadata.name}": each.reclaim_policy for each in classes}


def _check_class(api: Api, wanted: str | None) -> None:
    """A claim of a class that is not there would wait for ever."""
    try:
        classes = api.list_shapes("StorageClass", StorageClass)
    except Denied:
        return
    there = [each.metadata.name for each in classes]
    if wanted is not None and wanted not in there:
        raise InvalidJob(
            "class", wanted, "is not a storage class here", hint=f"there are {', '.join(there) or 'none'}"
        )
    if wanted is None and not any(map(is_default, classes)):
        raise InvalidJob(
            "class",
            None,
            "must be named: the cluster has no default",
            hint=f"--class with one of {', '.join(there)}" if there else "ask for a storage class first",
        )


def _if_allowed(api: Api, kind: str, shape: type[T]) -> Sequence[T]:
    try:
        return api.list_shapes(kind, shape)
    except Denied:
        return ()
