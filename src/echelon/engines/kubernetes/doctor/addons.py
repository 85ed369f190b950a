"""Addons for training that a cluster may have (operators, queues), and whether their controllers run.

A custom resource definition means only that objects are accepted; the controller that acts on them may have
been removed or be broken."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.fields import moment
from echelon.errors import Denied, Refused
from echelon.model.engine.finding import Finding
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api

Object = Mapping[str, Any]
_FRESH = (
    180.0  # seconds since a controller renewed its lease; it does so every few seconds, but clocks differ
)


@frozen
class Addon:
    """One addon: the name of its API, and where its controller usually runs."""

    name: str
    family: str = ""  # the subject of its line, if the name is too long
    group: str
    resource: str
    deployment: str
    namespace: str
    lease: str  # a part of the name of the lease that its controller holds
    version: str = ""  # of the API, where two of them share group and resource


ADDONS = (
    Addon(
        name="Kueue",
        group="kueue.x-k8s.io",
        resource="localqueues",
        deployment="kueue-controller-manager",
        namespace="kueue-system",
        lease="kueue",
    ),
    Addon(
        name="training operator",
        family="Kubeflow",
        group="kubeflow.org",
        resource="pytorchjobs",
        deployment="training-operator",
        namespace="kubeflow",
        lease="training-operator",
    ),
    Addon(
        name="MPI operator",
        family="Kubeflow",
        group="kubeflow.org",
        version="v2beta1",
        resource="mpijobs",
        deployment="mpi-operator",
        namespace="mpi-operator",
        lease="mpi-operator",
    ),
    Addon(
        name="trainer",
        family="Kubeflow",
        group="trainer.kubeflow.org",
        resource="trainjobs",
        deployment="kubeflow-trainer-controller-manager",
        namespace="kubeflow-system",
        lease="trainer",
    ),
    Addon(
        name="JobSet",
        group="jobset.x-k8s.io",
        resource="jobsets",
        deployment="jobset-controller-manager",
        namespace="jobset-system",
        lease="jobset",
    ),
)


def check_addons(api: Api) -> Iterator[Finding]:
    """A line for each addon. Every user may read the API server's list of groups."""
    groups = {group["name"]: group for group in api.raw("/apis").get("groups") or ()}
    absent = []
    for addon in ADDONS:
        served = _served(api, groups.get(addon.group), addon)
        if served is None:
            absent.append(f"{addon.family} {addon.name}".strip())
        else:
            yield judge(addon, served, *_controller(api, addon), now=time.time())
            if addon.name == "Kueue":
                yield _queues(api, addon, served)
    if absent:
        found = f"not installed, and not needed: {', '.join(absent)}"
        yield Finding(level="ok", what="add-ons", found=found)
    if "karpenter.sh" in groups:
        yield Finding(level="ok", what="autoscaler", found="Karpenter adds nodes for pods that find no room")


def judge(
    addon: Addon,
    served: str,
    deployments: Sequence[Object] | None,
    leases: Sequence[shapes.Lease] | None,
    *,
    now: float,
) -> Finding:
    """Whether an addon whose API is served has a running controller; None is what we may not list. Pure."""
    about = f"{addon.name}: API {served}" if addon.family else f"API {served}"
    for deployment in deployments or ():
        where, version = deployment["metadata"].get("namespace", ""), _version(deployment)
        ready = (deployment.get("status") or {}).get("readyReplicas") or 0
        if ready:
            return Finding(
                level="ok",
                what=addon.family or addon.name,
                found=f"{about}, controller {version} runs in {where}",
            )
        return Finding(
            level="degraded",
            what=addon.family or addon.name,
            found=f"{about}, but its controller in {where} is not ready",
            fix=f"its jobs and queues: kubectl -n {where} describe deployment {addon.deployment}",
        )
    for lease in leases or ():
        renewed = moment(lease.spec.renew_time)
        if addon.lease in lease.metadata.name and renewed is not None and now - renewed < _FRESH:
            return Finding(
                level="ok",
                what=addon.family or addon.name,
                found=f"{about}, a controller holds its lease in {lease.metadata.namespace}",
            )
    if deployments is None and leases is None:
        return Finding(
            level="degraded",
            what=addon.family or addon.name,
            found=f"{about}; whether its controller runs is unknown",
            fix=f"its jobs and queues: you may not list deployments in {addon.namespace}",
        )
    return Finding(
        level="degraded",
        what=addon.family or addon.name,
        found=f"{about}, but no Deployment or lease of a controller was found",
        fix="its objects are accepted, and nothing happens, unless it runs outside the cluster: "
        f"kubectl -n {addon.namespace} get deployments",
    )


def _served(api: Api, group: Object | None, addon: Addon) -> str | None:
    """The versions in which the addon's resource is served; None if it is not."""
    found = []
    for version in (group or {}).get("versions") or ():
        if addon.version in ("", version["version"]):
            try:
                resources = api.raw(f"/apis/{version['groupVersion']}").get("resources") or ()
            except Refused:  # it was just removed, or its API service is broken
                continue
            if any(each["name"] == addon.resource for each in resources):
                found.append(str(version["version"]))
    return ", ".join(found) or None


def _controller(api: Api, addon: Addon) -> tuple[Sequence[Object] | None, Sequence[shapes.Lease] | None]:
    from echelon.engines.kubernetes.client.api import ALL

    deployments: Sequence[Object] | None = None
    for where in (ALL, addon.namespace):
        try:
            deployments = api.list(
                "Deployment", fields=f"metadata.name={addon.deployment}", namespace=where
            ).items
            break
        except Denied:
            continue
    leases: Sequence[shapes.Lease] | None = None
    with suppress(Denied):
        leases = api.list_shapes("Lease", shapes.Lease, namespace=addon.namespace)
    return deployments, leases


def _queues(api: Api, addon: Addon, served: str) -> Finding:
    version = served.partition(", ")[0]
    try:
        queues = api.list_shapes(f"{addon.resource}.{version}.{addon.group}", shapes.Named)
    except (Denied, Refused):
        return Finding(level="ok", what="Kueue queues", found="unknown: you may not list them")
    names = ", ".join(each.metadata.name for each in queues)
    return Finding(level="ok", what="Kueue queues", found=names or "none in this namespace")


def _version(deployment: Object) -> str:
    """A controller's version: its label, else its image's tag."""
    label = (deployment["metadata"].get("labels") or {}).get("app.kubernetes.io/version")
    template = deployment["spec"].get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    tags = [
        each.get("image", "").rpartition("/")[2].partition("@")[0].partition(":")[2] for each in containers
    ]
    return str(label or next(filter(None, tags), "of an unknown version"))
