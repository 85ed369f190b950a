"""Which path of the API serves which kind of object.

Kinds that the engine uses are in a table, which saves a request. Any other is written as
"plural.version.group" (`pytorchjobs.v1.kubeflow.org`) and looked up once by API discovery. Where clusters
differ in what they serve, versions are written in the order of preference
(`workloads.v1beta2|v1beta1.kueue.x-k8s.io`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from echelon.errors import Refused
from echelon.values import frozen


class NotThere(Refused):
    """No such object, or no such kind of object."""


@frozen
class Kind:
    """Where objects of one kind are served."""

    group: str  # "" for the core
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects: `v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version


def _core(plural: str, *, namespaced: bool = True) -> Kind:
    return Kind(group="", version="v1", plural=plural, namespaced=namespaced)


def _of(group: str, plural: str, *, version: str = "v1", namespaced: bool = True) -> Kind:
    return Kind(group=group, version=version, plural=plural, namespaced=namespaced)


KINDS: Mapping[str, Kind] = {
    "ConfigMap": _core("configmaps"),
    "Event": _core("events"),
    "LimitRange": _core("limitranges"),
    "Namespace": _core("namespaces", namespaced=False),
    "Node": _core("nodes", namespaced=False),
    "PersistentVolume": _core("persistentvolumes", namespaced=False),
    "PersistentVolumeClaim": _core("persistentvolumeclaims"),
    "Pod": _core("pods"),
    "ResourceQuota": _core("resourcequotas"),
    "Secret": _core("secrets"),
    "Service": _core("services"),
    "ServiceAccount": _core("serviceaccounts"),
    "Deployment": _of("apps", "deployments"),
    "Job": _of("batch", "jobs"),
    "PyTorchJob": _of("kubeflow.org", "pytorchjobs"),
    "TFJob": _of("kubeflow.org", "tfjobs"),
    "MPIJob": _of("kubeflow.org", "mpijobs", version="v2beta1"),
    "TrainJob": _of("trainer.kubeflow.org", "trainjobs", version="v1alpha1"),
    "TrainingRuntime": _of("trainer.kubeflow.org", "trainingruntimes", version="v1alpha1"),
    "Lease": _of("coordination.k8s.io", "leases"),
    "EndpointSlice": _of("discovery.k8s.io", "endpointslices"),
    "NetworkPolicy": _of("networking.k8s.io", "networkpolicies"),
    "PriorityClass": _of("scheduling.k8s.io", "priorityclasses", namespaced=False),
    "StorageClass": _of("storage.k8s.io", "storageclasses", namespaced=False),
    "ClusterRole": _of("rbac.authorization.k8s.io", "clusterroles", namespaced=False),
    "ClusterRoleBinding": _of("rbac.authorization.k8s.io", "clusterrolebindings", namespaced=False),
    "Role": _of("rbac.authorization.k8s.io", "roles"),
    "RoleBinding": _of("rbac.authorization.k8s.io", "rolebindings"),
    "CustomResourceDefinition": _of("apiextensions.k8s.io", "customresourcedefinitions", namespaced=False),
    "SelfSubjectAccessReview": _of("authorization.k8s.io", "selfsubjectaccessreviews", namespaced=False),
    "SelfSubjectReview": _of("authentication.k8s.io", "selfsubjectreviews", namespaced=False),
}


def discovered(name: str) -> str:
    """A kind of the table by the name that is looked up: not every cluster serves Kubeflow's."""
    kind = KINDS[name]
    return f"{kind.plural}.{kind.version}.{kind.group}"


def split_name(name: str) -> tuple[str, str, str] | None:
    """The plural, version and group of a "plural.version.group"; None if `name` has another form."""
    plural, _, rest = name.partition(".")
    version, _, group = rest.partition(".")
    return (plural, version, group) if plural and version and group else None


def group_path(api_version: str) -> str:
    """The path below which a group and version is served: `v1`, `batch/v1`."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def pick_kind(api_version: str, resources: Sequence[Mapping[str, Any]], wanted: str) -> Kind | None:
    """The discovered resource whose plural or kind is `wanted`."""
    group, _, version = api_version.rpartition("/")
    for entry in resources:
        if "/" not in entry["name"] and wanted in (entry["name"], entry["kind"]):
            return Kind(
                group=group, version=version, plural=entry["name"], namespaced=bool(entry["namespaced"])
            )
    return None


class Catalogue:
    """The kinds of one cluster: those of the table, and those of discovered groups."""

    def __init__(self) -> None:
        self._served: dict[str, Sequence[Mapping[str, Any]]] = {}
        self._chosen: dict[str, Kind] = {}  # of those with several versions

    def find(self, name: str, api_version: str, ask: Callable[[str], Mapping[str, Any]]) -> Kind:
        """The kind of that name; raises NotThere if the cluster does not serve it. `ask` reads a path."""
        known = KINDS.get(name)
        if known is not None and api_version in ("", known.api_version):
            return known
        if api_version:
            return self._look_up(name, api_version, ask)
        if name in self._chosen:
            return self._chosen[name]
        parts = split_name(name)
        if parts is None:
            raise Refused(f"no kind of object is called {name!r}", hint="write plural.version.group")
        plural, versions, group = parts
        *better, last = versions.split("|")
        for version in better:
            with suppress(NotThere):
                self._chosen[name] = self._look_up(plural, f"{group}/{version}", ask)
                return self._chosen[name]
        found = self._look_up(plural, f"{group}/{last}", ask)
        if better:  # or a cluster that serves the last alone would be asked for the others each time
            self._chosen[name] = found
        return found

    def _look_up(self, wanted: str, api_version: str, ask: Callable[[str], Mapping[str, Any]]) -> Kind:
        found = pick_kind(api_version, self._served.get(api_version, ()), wanted)
        if found is None:
            self._served[api_version] = ask(group_path(api_version)).get("resources") or ()
            found = pick_kind(api_version, self._served[api_version], wanted)
        if found is None:
            missing = f"the cluster has no {wanted} of {api_version}"
            raise NotThere(missing, hint="is what defines it installed?")
        return found


def object_path(kind: Kind, namespace: str, name: str = "", subresource: str = "") -> str:
    """The path of an object, or of all objects of a kind; `namespace` "" is all of them."""
    place = f"/namespaces/{_quoted(namespace)}" if kind.namespaced and namespace else ""
    path = f"{group_path(kind.api_version)}{place}/{kind.plural}"
    if name:
        path += f"/{_quoted(name)}"
    return f"{path}/{subresource}" if subresource else path


def _quoted(part: str) -> str:
    return quote(part, safe="")
